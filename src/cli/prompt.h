// A model's text side as its files give it, and prompts as people give them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "chat/text_side.h"
#include "tokenizer/tokenizer.h"
#include "weights/model_files.h"

namespace quince::cli {

struct TextOptions {
  std::optional<std::string> template_file;  // instead of the model's own
  std::vector<std::string> end_tokens;  // texts or ids that end an answer, besides the model's own
  bool needs_template = true;           // false: the template is not even compiled
};

// Throws UserError.
TextSide make_text_side(
    TokenizerSource source,
    const std::vector<ChatTemplateSource>& templates,
    const std::string& model,
    const TextOptions& options);

// Throws UserError, also when the model has no tokenizer.
Tokenizer make_tokenizer(const TokenizerSource& source, const std::string& model);

// bos_token, eos_token, ... as plain texts, which is how templates want them.
boost::json::object special_token_texts(const TokenizerSource& source, const Tokenizer& tokenizer);

// Tokenizers take UTF-8 only: throws UserError with the place of what is something else. source:
// what the message calls it.
void check_utf8(std::string_view text, const std::string& source);

// Reads a whole text file, or standard input for "-". Throws UserError, also when it is not UTF-8
// text (the message gives the place).
std::string read_prompt_file(const std::string& path);
std::string read_stdin();
// Whether a pipe or a file waits on standard input with something in it. Reads nothing.
bool stdin_has_text();

}  // namespace quince::cli
