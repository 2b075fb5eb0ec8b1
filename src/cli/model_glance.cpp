#include "cli/model_glance.h"

#include "base/error.h"
#include "weights/gguf.h"
#include "weights/gguf_tokenizer.h"
#include "weights/json_file.h"
#include "weights/model_names.h"
#include "weights/safetensors.h"

namespace quince::cli {

namespace fs = std::filesystem;
namespace json = boost::json;

namespace {

// GGUF keys "<architecture>.<key>" and the words of config.json for the same.
constexpr std::pair<const char*, const char*> kSizes[] = {
    {"block_count", "num_hidden_layers"},
    {"embedding_length", "hidden_size"},
    {"feed_forward_length", "intermediate_size"},
    {"attention.head_count", "num_attention_heads"},
    {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.key_length", "head_dim"},
    {"attention.kv_lora_rank", "kv_lora_rank"},
    {"attention.sliding_window", "sliding_window"},
    {"context_length", "max_position_embeddings"},
    {"rope.freq_base", "rope_theta"},
    {"rope.dimension_count", "qk_rope_head_dim"},
    {"expert_count", "num_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"vocab_size", "vocab_size"},
};

json::object sizes(const GgufFile& file, std::string_view architecture) {
  json::object config{{"model_type", architecture}};
  for (const auto& [key, name] : kSizes) {
    const GgufValue* value = file.find(fmt::format("{}.{}", architecture, key));
    if (value == nullptr || !value->as_float()) {
      continue;
    }
    if (auto whole = value->as_int()) {
      config[name] = *whole;
    } else {
      config[name] = *value->as_float();
    }
  }
  return config;
}

void read_tokenizer(const GgufFile& file, ModelFiles& files) {
  try {
    files.tokenizer.vocabulary = gguf_vocabulary(file, files.notes);
  } catch (const UserError& error) {
    files.notes.push_back(error.what());
  }
  if (auto id = file.get_int("tokenizer.ggml.bos_token_id")) {
    files.tokenizer.bos_token_id = static_cast<int32_t>(*id);
  }
  for (const char* key : {"eos", "eot", "eom"}) {
    if (auto id = file.get_int(fmt::format("tokenizer.ggml.{}_token_id", key))) {
      files.tokenizer.eos_token_ids.push_back(static_cast<int32_t>(*id));
    }
  }
  if (auto text = file.get_string("tokenizer.chat_template")) {
    files.chat_templates.push_back({"default", std::string(*text)});
  }
}

ModelFiles glance_at_gguf(const fs::path& path) {
  std::vector<GgufFile> parts = open_gguf_set(path);
  const GgufFile& first = parts.front();
  ModelFiles files;
  files.path = first.source();
  files.container = "gguf";
  std::string architecture(first.get_string("general.architecture").value_or("unknown"));
  files.config = sizes(first, architecture);
  for (const auto& [key, value] : first.metadata()) {
    files.metadata[key] = value.to_json();
  }
  for (const GgufFile& part : parts) {
    files.tensors.insert(files.tensors.end(), part.tensors().begin(), part.tensors().end());
  }
  read_tokenizer(first, files);
  return files;
}

ModelFiles glance_at_directory(const fs::path& path) {
  ModelFiles files;
  files.path = path;
  files.container = "safetensors";
  fs::path config = path / "config.json";
  constexpr size_t kMostBytes = size_t{64} << 20;
  files.config = parse_json_object(read_text_file(config, kMostBytes), config.string());
  SafetensorsContent content = open_safetensors_directory(path);
  files.tensors = std::move(content.tensors);
  files.metadata = std::move(content.metadata);
  return files;
}

}  // namespace

ModelGlance glance(const std::string& model) {
  std::string refused;
  try {
    return {open_model(model), std::nullopt};
  } catch (const UserError& error) {
    refused = error.what();
  }
  // A file that is broken is refused here for the same reason as before.
  fs::path path = resolve_model(model);
  try {
    return {fs::is_directory(path) ? glance_at_directory(path) : glance_at_gguf(path), refused};
  } catch (const UserError&) {
    throw UserError("{}", refused);
  }
}

}  // namespace quince::cli
