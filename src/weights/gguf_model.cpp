// A GGUF file (or split set) as a model in Hugging Face's terms.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "weights/gguf.h"
#include "weights/gguf_config.h"
#include "weights/gguf_tokenizer.h"
#include "weights/model_files.h"
#include "weights/tokenizer_files.h"
#include "weights/turn_ends.h"

namespace quince {

namespace fs = std::filesystem;
namespace json = boost::json;

namespace {

constexpr int32_t kControlToken = 3;  // of tokenizer.ggml.token_type

void add_turn_ends(
    std::vector<int32_t>& ids,
    const std::vector<std::string_view>& tokens,
    const std::vector<int32_t>& types) {
  for (size_t i = 0; i < tokens.size() && i < types.size(); ++i) {
    if (types[i] != kControlToken || !is_turn_end(tokens[i])) {
      continue;
    }
    const auto id = static_cast<int32_t>(i);
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) {
      ids.push_back(id);
    }
  }
}

// Whether a file without the key add_bos_token wants BOS: SentencePiece vocabularies do, of the
// byte-level BPE ones a few.
bool default_add_bos(const GgufFile& file) {
  const std::string_view model = file.get_string("tokenizer.ggml.model").value_or("");
  const auto pre = find_pre_tokenizer(file.get_string("tokenizer.ggml.pre").value_or(""));
  return model == "llama" || (pre && pre->add_bos);
}

std::optional<int32_t> token_id(
    const GgufFile& file, std::string_view key, const std::vector<std::string_view>& tokens) {
  const auto id = file.get_int(key);
  if (!id || *id == -1 || *id == UINT32_MAX) {
    return std::nullopt;
  }
  if (*id < 0 || static_cast<uint64_t>(*id) >= tokens.size()) {
    throw UserError(
        "{}: {} is {}, but the vocabulary has {} tokens", file.source(), key, *id, tokens.size());
  }
  return static_cast<int32_t>(*id);
}

// tokenizer.chat_template is the default one, tokenizer.chat_template.NAME are further ones.
std::vector<ChatTemplateSource> chat_templates(const GgufFile& file) {
  constexpr std::string_view kKey = "tokenizer.chat_template";
  std::vector<ChatTemplateSource> templates;
  for (const auto& [key, value] : file.metadata()) {
    if (!key.starts_with(kKey) || !value.as_string()) {
      continue;
    }
    if (key == kKey) {
      templates.insert(templates.begin(), {"default", std::string(*value.as_string())});
    } else if (key[kKey.size()] == '.') {
      templates.push_back(
          {std::string(key.substr(kKey.size() + 1)), std::string(*value.as_string())});
    }
  }
  return templates;
}

// How the model's makers sample from it, in the words of generation_config.json.
json::object generation_config(const GgufFile& file) {
  constexpr std::pair<const char*, const char*> kKeys[] = {
      {"general.sampling.temp", "temperature"},
      {"general.sampling.top_k", "top_k"},
      {"general.sampling.top_p", "top_p"},
      {"general.sampling.min_p", "min_p"},
      {"general.sampling.penalty_repeat", "repetition_penalty"},
  };
  json::object config;
  for (const auto& [key, name] : kKeys) {
    if (const GgufValue* value = file.find(key)) {
      config[name] = value->to_json();
    }
  }
  if (const auto temperature = file.find("general.sampling.temp")) {
    config["do_sample"] = temperature->as_float().value_or(1) > 0;
  }
  return config;
}

json::object metadata_json(const GgufFile& file) {
  json::object metadata;
  for (const auto& [key, value] : file.metadata()) {
    metadata[key] = value.to_json();
  }
  return metadata;
}

void refuse_non_models(const GgufFile& file) {
  const std::string_view type = file.get_string("general.type").value_or("model");
  if (type != "model") {
    throw UserError("{}: holds no model but a file of type {}", file.source(), type);
  }
}

}  // namespace

TokenizerSource gguf_tokenizer_source(const GgufFile& file, std::vector<std::string>& notes) {
  TokenizerSource source;
  const GgufValue* vocabulary = file.find("tokenizer.ggml.tokens");
  if (!vocabulary) {
    notes.push_back(fmt::format("{}: has no tokenizer", file.source()));
    return source;
  }
  if (vocabulary->type != GgufType::array || vocabulary->element != GgufType::string) {
    throw UserError("{}: tokenizer.ggml.tokens is no list of strings", file.source());
  }
  source.vocabulary = gguf_vocabulary(file, notes);
  const std::vector<std::string_view> tokens = vocabulary->strings();
  const GgufValue* types_value = file.find("tokenizer.ggml.token_type");
  const std::vector<int32_t> types = types_value ? types_value->ints() : std::vector<int32_t>();

  for (const auto& [key, name] :
       {std::pair("bos", "bos_token"),
        std::pair("eos", "eos_token"),
        std::pair("unknown", "unk_token"),
        std::pair("padding", "pad_token")}) {
    const auto id = token_id(file, fmt::format("tokenizer.ggml.{}_token_id", key), tokens);
    if (id) {
      source.tokenizer_config[name] = std::string(tokens[static_cast<size_t>(*id)]);
    }
  }
  source.bos_token_id = token_id(file, "tokenizer.ggml.bos_token_id", tokens);
  for (const char* key : {"eos", "eot", "eom"}) {
    if (const auto id = token_id(file, fmt::format("tokenizer.ggml.{}_token_id", key), tokens)) {
      if (std::find(source.eos_token_ids.begin(), source.eos_token_ids.end(), *id) ==
          source.eos_token_ids.end()) {
        source.eos_token_ids.push_back(*id);
      }
    }
  }
  add_turn_ends(source.eos_token_ids, tokens, types);
  source.add_bos = source.bos_token_id &&
                   file.get_bool("tokenizer.ggml.add_bos_token").value_or(default_add_bos(file));
  source.tokenizer_config["add_bos_token"] = source.add_bos;
  return source;
}

ModelFiles open_gguf_model(const fs::path& path) {
  std::vector<GgufFile> parts = open_gguf_set(path);
  const GgufFile& first = parts.front();
  refuse_non_models(first);
  ModelFiles files;
  files.path = fs::path(first.source());
  files.container = "gguf";
  std::vector<TensorView> tensors;
  std::set<std::string, std::less<>> names;
  for (GgufFile& part : parts) {
    for (TensorView& tensor : part.take_tensors()) {
      if (!names.insert(tensor.name).second) {
        throw UserError("{}: tensor {} is in another part too", part.source(), tensor.name);
      }
      tensors.push_back(std::move(tensor));
    }
  }
  files.config = gguf_hf_config(first, tensors);
  files.tensors =
      gguf_hf_tensors(*first.get_string("general.architecture"), files.config, std::move(tensors));
  files.tokenizer = gguf_tokenizer_source(first, files.notes);
  files.chat_templates = chat_templates(first);
  files.generation_config = generation_config(first);
  files.metadata = metadata_json(first);
  return files;
}

}  // namespace quince
