#include "cli/model_report.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "cli/prompt.h"
#include "models/model.h"
#include "quant/matrix_source.h"
#include "tokenizer/tokenizer.h"
#include "weights/json_file.h"

namespace quince::cli {

namespace json = boost::json;

namespace {

constexpr int64_t kPrefillRows = 512;                   // the engine's default chunk
constexpr uint64_t kProgramBytes = uint64_t{64} << 20;  // code, tokenizer, buffers

const json::object* object_at(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  return value == nullptr ? nullptr : value->if_object();
}

const json::object& text_part(const json::object& config) {
  const json::object* text = object_at(config, "text_config");
  return text == nullptr ? config : *text;
}

json::object quantization(const json::object& config) {
  if (const json::object* object = object_at(config, "quantization")) {
    return *object;
  }
  return {};
}

// Plain tensors one by one; an MLX triple (weight, scales, biases) as one matrix of its logical
// width.
std::vector<TensorRow> tensor_rows(const ModelFiles& files) {
  std::map<std::string_view, const TensorView*> by_name;
  for (const TensorView& tensor : files.tensors) {
    by_name[tensor.name] = &tensor;
  }
  json::object quantized = quantization(files.config);
  std::vector<TensorRow> rows;
  std::set<std::string> parts;  // scales and biases that were counted with their matrix
  for (const TensorView& tensor : files.tensors) {
    TensorRow row{
        tensor.name,
        std::string(info(tensor.type).name),
        tensor.shape,
        tensor.size(),
        tensor.bytes.size(),
        0};
    std::string_view name = tensor.name;
    constexpr std::string_view kWeight = ".weight";
    if (name.ends_with(kWeight) && tensor.type == TensorType::u32 && !tensor.shape.empty()) {
      std::string path(name.substr(0, name.size() - kWeight.size()));
      auto scales = by_name.find(path + ".scales");
      std::optional<MlxLayout> layout;
      if (scales != by_name.end()) {
        try {
          layout = mlx_layout(quantized, path, files.path.string());
        } catch (const UserError&) {
          layout.reset();  // loading will say what is wrong; here the packed form is shown as it is
        }
      }
      if (layout && layout->bits > 0) {
        row.type = fmt::format("{} {}-bit g{}", layout->mode, layout->bits, layout->group);
        row.shape.back() = row.shape.back() * 32 / layout->bits;
        row.elements = tensor.size() * 32 / layout->bits;
        for (const char* part : {".scales", ".biases"}) {
          auto found = by_name.find(path + part);
          if (found != by_name.end()) {
            row.bytes += found->second->bytes.size();
            parts.insert(path + part);
          }
        }
      }
    }
    row.bits = row.elements > 0
                   ? 8.0 * static_cast<double>(row.bytes) / static_cast<double>(row.elements)
                   : 0;
    rows.push_back(std::move(row));
  }
  std::erase_if(rows, [&](const TensorRow& row) { return parts.contains(row.name); });
  return rows;
}

void describe_shape(ModelReport& report, const json::object& config) {
  static constexpr std::pair<const char*, const char*> kFields[] = {
      {"num_hidden_layers", "layers"},
      {"hidden_size", "hidden_size"},
      {"intermediate_size", "intermediate_size"},
      {"num_attention_heads", "heads"},
      {"num_key_value_heads", "kv_heads"},
      {"head_dim", "head_dim"},
      {"vocab_size", "vocab_size"},
      {"sliding_window", "sliding_window"},
      {"rope_theta", "rope_theta"},
      {"rope_scaling", "rope_scaling"},
      {"rope_parameters", "rope_parameters"},
      {"tie_word_embeddings", "tied_embeddings"},
      {"num_experts", "experts"},
      {"num_local_experts", "experts"},
      {"num_experts_per_tok", "experts_per_token"},
  };
  for (const auto& [key, name] : kFields) {
    const json::value* value = config.if_contains(key);
    if (value != nullptr && !value->is_null()) {
      report.shape[name] = *value;
    }
  }
}

// "BPE, byte-level": from tokenizer.json's own words.
std::string tokenizer_kind(const json::object& tokenizer) {
  const json::object* model = object_at(tokenizer, "model");
  if (model == nullptr) {
    return "unknown";
  }
  std::string kind = model->contains("merges") ? "BPE" : "unknown";
  const json::value* type = model->if_contains("type");
  if (type != nullptr && type->is_string()) {
    kind = std::string(type->get_string());
  }
  const json::value* fallback = model->if_contains("byte_fallback");
  if (fallback != nullptr && fallback->is_bool() && fallback->get_bool()) {
    kind += ", byte fallback";
  }
  for (const char* stage : {"pre_tokenizer", "decoder"}) {
    const json::value* value = tokenizer.if_contains(stage);
    if (value != nullptr && json::serialize(*value).find("\"ByteLevel\"") != std::string::npos) {
      return kind + ", byte-level";
    }
  }
  return kind;
}

void describe_tokenizer(ModelReport& report, const TokenizerSource& source) {
  report.bos = source.bos_token_id;
  report.add_bos = source.add_bos;
  report.end_tokens = source.eos_token_ids;
  if (source.tokenizer_json.empty() && source.vocabulary == nullptr) {
    report.tokenizer = "none";
    return;
  }
  try {
    report.tokenizer = source.vocabulary != nullptr
                           ? source.vocabulary->description
                           : tokenizer_kind(parse_json_object(
                                 source.tokenizer_json, report.model + ": tokenizer"));
    Tokenizer tokenizer = make_tokenizer(source, report.model);
    report.vocabulary = tokenizer.vocab_size();
    report.special_tokens = tokenizer.special_tokens();
    auto remember = [&](int32_t id) {
      report.token_texts[id] = tokenizer.id_to_token(id).value_or("");
    };
    if (report.bos) {
      remember(*report.bos);
    }
    std::for_each(report.end_tokens.begin(), report.end_tokens.end(), remember);
  } catch (const UserError& error) {
    report.tokenizer = fmt::format("cannot be read: {}", error.what());
  }
}

std::vector<int64_t> usual_contexts(int64_t trained) {
  std::vector<int64_t> contexts;
  for (int64_t context : {int64_t{4096}, int64_t{32768}, int64_t{131072}}) {
    if (trained == 0 || context < trained) {
      contexts.push_back(context);
    }
  }
  if (trained > 0) {
    contexts.push_back(trained);
  }
  if (trained == 0) {
    contexts.pop_back();  // 128k says little about a model whose context is unknown
  }
  return contexts;
}

void describe_memory(ModelReport& report, const ReportOptions& options) {
  std::vector<int64_t> contexts =
      options.contexts.empty() ? usual_contexts(report.context) : options.contexts;
  report.workspace = workspace_bytes(report.config, kPrefillRows) + kProgramBytes;
  if (report.kv.empty()) {
    return;
  }
  for (int64_t context : contexts) {
    for (KvFormat type : options.kv) {
      uint64_t kv = kv_bytes(report.kv, context, type);
      report.needs.push_back({context, type, kv, report.held_bytes + kv + report.workspace});
    }
  }
}

}  // namespace

ModelReport make_report(
    ModelGlance glance, const std::string& model, const ReportOptions& options) {
  const ModelFiles& files = glance.files;
  ModelReport report;
  report.model = model;
  report.path = files.path.string();
  report.container = files.container;
  const json::object& config = text_part(files.config);
  const json::value* type = files.config.if_contains("model_type");
  report.architecture =
      type != nullptr && type->is_string() ? std::string(type->get_string()) : "unknown";
  for (const char* key :
       {"do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty"}) {
    const json::value* value = files.generation_config.if_contains(key);
    if (value != nullptr && !value->is_null()) {
      report.sampling[key] = *value;
    }
  }
  report.tensors = tensor_rows(files);
  for (const TensorRow& row : report.tensors) {
    report.parameters += row.elements;
    report.file_bytes += row.bytes;
  }
  for (const TensorView& tensor : files.tensors) {
    report.held_bytes += held_bytes(tensor);
  }
  const json::value* context = config.if_contains("max_position_embeddings");
  if (context != nullptr && context->is_int64() && context->get_int64() > 0) {
    report.context = context->get_int64();
  }
  describe_shape(report, config);
  try {
    if (glance.refused) {
      throw UserError("{}", *glance.refused);
    }
    DecoderSpec spec = check_model(files);
    report.kv = kv_layers(spec);
    report.kv_exact = true;
    report.context = spec.context_length;
  } catch (const UserError& error) {
    report.cannot_run = error.what();
    report.kv = kv_layers(files.config);
  }
  describe_tokenizer(report, files.tokenizer);
  report.templates = files.chat_templates;
  report.notes = files.notes;
  report.metadata = files.metadata;
  report.config = files.config;
  describe_memory(report, options);
  return report;
}

}  // namespace quince::cli
