// What a caller asks for when an answer is to have a form. Plain data.
#pragma once

#include <cstdint>
#include <string>

namespace quince {

enum class ConstraintKind : uint8_t {
  json_schema,  // text: a JSON schema (draft 2020-12; older drafts by their $schema)
  json_object,  // any JSON object; no text
  regex,        // of the whole answer, in the Rust regex crate's syntax, without look-around
  choice,       // text: a JSON array of the texts to choose from
  lark,         // llguidance's variant of Lark; the rule "start" is the answer
  gbnf          // llama.cpp's notation; the rule "root" is the answer
};

struct ConstraintSpec {
  ConstraintKind kind = ConstraintKind::json_object;
  std::string text;
};

}  // namespace quince
