// Tools put into words, for models whose chat template cannot speak of them: what tools there are
// and how one is called stands in the system message, calls and their results are messages of
// plain text. All of it is in one form, JSON between <tool_call> and </tool_call>, which is also
// what the answer is read and constrained to: most models have seen it, whatever their template
// says, and the small ones keep to it best.
#pragma once

#include <optional>

#include <boost/json.hpp>

#include "chat/answer_reader.h"
#include "chat/template.h"
#include "chat/text_side.h"

namespace quince {

// How a model with this text side writes calls.
const ToolFormat& tool_format(const TextSide& text);

// The conversation as the template needs it. In words: tools are in messages then, and there are
// none left for the template; conversations with calls become text even where no tool is given, if
// the template would drop them. Or with the ids that the model knows its calls by (Kimi K2).
// Nothing: as it is. text: with a chat template. messages: as ChatTemplate::render takes them.
std::optional<boost::json::array> told_messages(
    const TextSide& text, const boost::json::array& messages, boost::json::array& tools);

}  // namespace quince
