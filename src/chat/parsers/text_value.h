// Texts that stand in a call as they are, without JSON's quotation marks, held to what their schema
// says of them: minLength, maxLength, pattern, format, enum, const.
#pragma once

#include <optional>
#include <string>

#include <boost/json.hpp>

namespace quince {

// An expression for terminals of Lark grammars that the texts of this schema fit, and no others.
// Nothing: any text does. What the expression cannot say (look-around, anchors inside of a group)
// makes the grammar one that is not compiled.
std::optional<std::string> text_body(const boost::json::object& schema);

// A terminal's name, of a rule's.
std::string terminal_name(std::string rule);

}  // namespace quince
