// A model's text side: tokenizer, chat template, end tokens; and the prompts made with them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "chat/template.h"
#include "tokenizer/tokenizer.h"
#include "weights/model_files.h"

namespace quince::cli {

struct TextSide {
  TextSide(std::string source, Tokenizer tokenizer)
      : source(std::move(source)), tokenizer(std::move(tokenizer)) {}

  std::string source;  // named in errors
  Tokenizer tokenizer;
  std::optional<ChatTemplate> chat_template;
  std::string template_name;  // "default", or a file's name
  std::optional<Token> bos;
  bool add_bos = false;
  std::vector<Token> end_tokens;  // sorted, each once
};

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

// A prompt that is used as it is: the tokenizer's own beginning (BOS) exactly once, special tokens
// written in the text are special.
std::vector<Token> raw_prompt(const TextSide& text, std::string_view prompt);

// bos_token, eos_token, ... as plain texts, which is how templates want them.
boost::json::object special_token_texts(const TokenizerSource& source, const Tokenizer& tokenizer);

// Reads a whole text file, or standard input for "-". Throws UserError, also when it is not UTF-8
// text (the message gives the place).
std::string read_prompt_file(const std::string& path);
std::string read_stdin();

}  // namespace quince::cli
