// The conversation of a request, checked and brought into the form that chat templates want.
#pragma once

#include <optional>

#include <boost/json.hpp>

#include "chat/template.h"
#include "server/fields.h"
#include "server/openai/params.h"
#include "server/served_model.h"

namespace quince::server {

// Roles are checked, "developer" becomes "system", contents in parts become one text. Throws
// ApiError 400 naming the message.
boost::json::array parse_messages(Fields& fields);

enum class ToolChoice { none, automatic, required };

struct ChatPrompt {
  boost::json::array messages;
  std::optional<boost::json::array> told;  // in words, of a template that needs it
  RenderOptions render;                    // with the tools, unless none may be called
  ToolChoice choice = ToolChoice::none;
  boost::json::array callable;  // of the tools, those that may be called
  bool parallel_calls = true;
  bool split_reasoning = true;
  int reasoning_budget = -1;  // tokens; -1: no limit

  const boost::json::array& shown() const {  // to the template
    return told ? *told : messages;
  }
};
// messages, tools, chat_template_kwargs, reasoning_effort and relatives. Throws ApiError 400.
ChatPrompt parse_chat(Fields& fields, const ServedModel& model);
// fits: what surely is too long for the context is an ApiError 400; any: what no worker can be kept
// busy with (refuse_long_text).
enum class PromptLength { fits, any };
std::vector<Token> encode_chat(
    const ChatPrompt& prompt, const ServedModel& model, PromptLength length = PromptLength::fits);
// How the answer to that prompt is to be read, and what it is held to when a tool must be called.
void prepare_reading(
    const ChatPrompt& prompt,
    const std::vector<Token>& ids,
    const ServedModel& model,
    GenerationParams& params);

}  // namespace quince::server
