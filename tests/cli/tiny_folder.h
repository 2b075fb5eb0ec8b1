// A tiny random model with a tokenizer, as a directory: enough to run every command on.
#pragma once

#include <filesystem>

#include "cli/tiny_tokenizer.h"
#include "convert/convert.h"
#include "models/tiny_model.h"

namespace quince::test {

inline constexpr const char* kTinyTemplate =
    "{% for m in messages %}{{ m.role[0] }}: {{ m.content }}\n{% endfor %}a: ";

// name: of a golden of tests/models. Ids from 128 on do not exist in it, so prompts must be ASCII.
inline ModelFiles tiny_files(const std::string& name, bool with_template = true) {
  ModelFiles files = load_golden(name).files();
  files.config["torch_dtype"] = "float32";
  files.tokenizer.tokenizer_json = tiny_tokenizer_json();
  if (with_template) {
    files.chat_templates.push_back({"default", kTinyTemplate});
  }
  return files;
}

inline void write_tiny_folder(
    const std::filesystem::path& folder,
    const std::string& name = "llama",
    bool with_template = true) {
  ConvertOptions options;
  options.out = folder;
  options.pool = std::make_shared<ThreadPool>(1);
  convert(tiny_files(name, with_template), options);
}

}  // namespace quince::test
