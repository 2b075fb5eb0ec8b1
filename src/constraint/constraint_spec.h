// What a caller asks for when an answer is to have a form. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quince {

enum class ConstraintKind : uint8_t {
  json_schema,  // text: a JSON schema (draft 2020-12; older drafts by their $schema)
  json_object,  // any JSON object; no text
  regex,        // of the whole answer, in the Rust regex crate's syntax, without look-around
  choice,       // text: a JSON array of the texts to choose from
  lark,         // llguidance's variant of Lark; the rule "start" is the answer
  gbnf          // llama.cpp's notation; the rule "root" is the answer
};

// A schema within a grammar. Where a grammar leaves a choice, one that nothing fits would only
// never be chosen.
struct ConstraintPart {
  std::string name;  // for messages
  std::string schema;
};

struct ConstraintSpec {
  ConstraintKind kind = ConstraintKind::json_object;
  std::string text;
  std::vector<ConstraintPart> parts = {};  // each must be possible by itself
};

}  // namespace quince
