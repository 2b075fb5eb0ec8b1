// What the grammars (Lark) of several ways of writing calls are made of.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <boost/json.hpp>

#include "tokenizer/tokenizer.h"

namespace quince {

// A text as Lark writes one.
std::string lark_text(std::string_view text);
// A special token of that text, or the text where there is no such token.
std::string lark_mark(const Tokenizer& tokenizer, std::string_view mark);
// The JSON schema of a tool's arguments, which are an object whether or not it says so.
boost::json::object parameters_of(const boost::json::value& tool);
// The same as text.
std::string arguments_schema(const boost::json::value& tool);
// Whether the tool of that name takes a text, and nothing else, as that argument.
bool is_text_argument(const boost::json::array& tools, std::string_view name, std::string_view key);

// What a text is inside of JSON's quotation marks.
std::string escaped(std::string_view text);

// How a way of writing has one argument of a call: begin, the value, end_text, behind. Texts stand
// there as they are, everything else as JSON.
struct ArgumentForm {
  std::function<std::string(std::string_view key, bool is_text)> begin;  // a Lark expression
  std::string_view end_text;  // plain text, which no text value holds
  std::string behind;         // a Lark expression, or empty
};

// A member of a schema as a schema of its own, as text: what it refers to comes along.
std::string member_schema(const boost::json::object& whole, const boost::json::value& member);
bool is_required(const boost::json::object& schema, std::string_view key);

// An expression for the arguments of a tool, in the schema's order, those that it does not require
// perhaps left out; begins with a space. Its rules, whose names begin with prefix, go to rules.
std::string argument_rules(
    const std::string& prefix,
    const boost::json::value& tool,
    const ArgumentForm& form,
    std::string& rules);

}  // namespace quince
