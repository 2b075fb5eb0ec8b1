// Opens whatever the user calls a model and presents it in one form: configuration as in Hugging
// Face's config.json, tensors under Hugging Face's names, and the texts that the tokenizer and the
// chat template are made from. Above this header nobody knows which container it was.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "weights/tensor.h"

namespace quince {

// Where token strings come from: tokenizer.json, or the vocabulary inside a GGUF file already turned
// into the text of an equivalent tokenizer.json.
struct TokenizerSource {
  std::string tokenizer_json;
  boost::json::object tokenizer_config; // as in tokenizer_config.json; {} when absent
  std::optional<int32_t> bos_token_id;
  std::vector<int32_t> eos_token_ids; // union of generation_config, config, tokenizer, GGUF keys
  bool add_bos = false;
};

struct ChatTemplateSource {
  std::string name; // "default", "tool_use", ...
  std::string text;
};

struct ModelFiles {
  std::filesystem::path path; // what was opened: the directory or the (first) GGUF file
  std::string container; // "safetensors" or "gguf"
  boost::json::object config; // config.json's form, also for GGUF
  boost::json::object generation_config;
  std::vector<TensorView> tensors; // Hugging Face names
  TokenizerSource tokenizer;
  std::vector<ChatTemplateSource> chat_templates;
  boost::json::object metadata; // all GGUF keys (long arrays as their length), or safetensors' __metadata__
  std::vector<std::string> notes; // lines the user should see, e.g. "3 IQ2_XS tensors will be held as 8-bit"
};

// MODEL is a GGUF file (any part of a split set), a directory, a repo id in the local hub cache, or an
// alias (see weights/hub.h). Throws UserError. Reads headers only.
ModelFiles open_model(const std::string& model);

// GGUF names, metadata and vocabulary in Hugging Face's terms (used by open_model; apart for tests).
std::optional<std::string> hf_tensor_name(std::string_view architecture, std::string_view gguf_name);

} // namespace quince
