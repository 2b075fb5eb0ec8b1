// A model's text side: tokenizer, chat template, end tokens; and the prompts made with them.
// Immutable after construction; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/template.h"
#include "tokenizer/tokenizer.h"

namespace quince {

struct TextSide {
  TextSide(std::string source, Tokenizer tokenizer)
      : source(std::move(source)), tokenizer(std::move(tokenizer)) {}

  std::string source;  // named in errors
  Tokenizer tokenizer;
  std::optional<ChatTemplate> chat_template;
  std::string template_name;  // "default", or a file's name
  std::string template_text;
  std::optional<Token> bos;
  bool add_bos = false;
  std::vector<Token> end_tokens;  // sorted, each once
};

// A prompt that is used as it is: the tokenizer's own beginning (BOS) exactly once, special tokens
// written in the text are special.
std::vector<Token> raw_prompt(const TextSide& text, std::string_view prompt);

}  // namespace quince
