// Opens whatever the user calls a model and presents it in one form: configuration as in Hugging
// Face's config.json, tensors under Hugging Face's names, and the texts that the tokenizer and the
// chat template are made from. Above this header nobody knows which container it was.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "base/vocabulary.h"
#include "weights/tensor.h"

namespace quince {

// Where token strings come from: the text of a tokenizer.json, or the vocabulary of a GGUF file. A
// model without a tokenizer has neither.
struct TokenizerSource {
  std::shared_ptr<const Vocabulary> vocabulary;  // GGUF
  std::string tokenizer_json;                    // directories
  boost::json::object tokenizer_config;          // as in tokenizer_config.json; {} when absent
  std::optional<int32_t> bos_token_id;
  std::vector<int32_t> eos_token_ids;  // union of generation_config, config, tokenizer, GGUF keys
  bool add_bos = false;                // a raw prompt begins with BOS
};

struct ChatTemplateSource {
  std::string name;  // "default", "tool_use", ...
  std::string text;
};

struct ModelFiles {
  std::filesystem::path path;  // what was opened: the directory or the (first) GGUF file
  std::string container;       // "safetensors" or "gguf"
  // config.json's form, also for GGUF (see gguf_config.h). Of a multimodal config.json this is the
  // "text_config" object with the outer "quantization" and token ids added.
  boost::json::object config;
  boost::json::object generation_config;
  std::vector<TensorView> tensors;  // Hugging Face names
  TokenizerSource tokenizer;
  std::vector<ChatTemplateSource> chat_templates;
  boost::json::object
      metadata;  // all GGUF keys (long arrays as their length), or safetensors' __metadata__
  std::vector<std::string>
      notes;  // lines the user should see, e.g. "437 vision tensors were left out"
};

// MODEL is a GGUF file (any part of a split set), a directory, a repo id in the local hub cache, or
// an alias (see weights/model_names.h). Throws UserError. Reads headers only.
ModelFiles open_model(const std::string& model);

// Reads the files that the tensors lie in into memory of this process, whole, so that nothing is
// read while the model is loaded, and nothing that happens to the files is seen. Throws UserError.
void read_tensors(ModelFiles& files);

// The two containers (used by open_model).
ModelFiles open_gguf_model(const std::filesystem::path& file);
ModelFiles open_model_directory(const std::filesystem::path& directory);

// config.json's text as ModelFiles::config, and what its spelling of tensor names needs: of a
// multimodal model the language model's tensors lose their prefix, the others are dropped.
struct DirectoryConfig {
  boost::json::object config;
  bool nested = false;  // had a text_config
};
DirectoryConfig parse_model_config(std::string_view text, std::string_view source);
// The name inside the language model; nothing for vision and audio parts.
std::optional<std::string> language_model_name(std::string_view name);

// GGUF names, metadata and vocabulary in Hugging Face's terms (used by open_model; apart for
// tests).
std::optional<std::string> hf_tensor_name(
    std::string_view architecture, std::string_view gguf_name);

}  // namespace quince
