// The conversation of a request, checked and brought into the form that chat templates want.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "chat/template.h"
#include "server/fields.h"
#include "server/openai/params.h"
#include "server/served_model.h"

namespace quince::server {

// What a route calls the parts of a conversation: errors name what the client has sent.
struct ChatNames {
  std::string_view messages = "messages";
  std::string_view function = ".function";  // of a tool, in which its name stands
  std::string_view parameters = ".function.parameters";
};
inline constexpr ChatNames kResponseNames{"input", "", ".parameters"};      // of /v1/responses
inline constexpr ChatNames kMessageNames{"messages", "", ".input_schema"};  // of /v1/messages

// A message: its role is checked, "developer" becomes "system", contents in parts become one text.
// path: where it stands in the request. Throws ApiError 400 naming what is wrong in it.
boost::json::object parse_message(const boost::json::value& value, const std::string& path);
// The text of a content, which is one, or is in parts. Likewise.
std::string parse_content(const boost::json::value& content, const std::string& path);

enum class ToolChoice { none, automatic, required };

struct ChatPrompt {
  boost::json::array messages;
  std::optional<boost::json::array> told;  // in words, of a template that needs it
  RenderOptions render;                    // with the tools, unless none may be called
  ToolChoice choice = ToolChoice::none;
  boost::json::array callable;               // of the tools, those that may be called
  std::vector<std::string> tool_fields;      // of each tool: its schema in the request
  std::vector<std::string> callable_fields;  // likewise, of those that may be called
  ChatNames names;
  bool parallel_calls = true;
  bool split_reasoning = true;
  int reasoning_budget = -1;  // tokens; -1: no limit

  const boost::json::array& shown() const {  // to the template
    return told ? *told : messages;
  }
};
// messages, tools, chat_template_kwargs, reasoning_effort and relatives. Throws ApiError 400.
ChatPrompt parse_chat(Fields& fields, const ServedModel& model, const ChatNames& names = {});
// fits: what surely is too long for the context is an ApiError 400; any: what no worker can be kept
// busy with (refuse_long_text).
enum class PromptLength { fits, any };
std::vector<Token> encode_chat(
    const ChatPrompt& prompt, const ServedModel& model, PromptLength length = PromptLength::fits);
// How the answer to that prompt is to be read, and what it is held to when a tool must be called.
// Throws ApiError 400 naming the tool whose schema cannot be held to, where it has to be.
void prepare_reading(
    const ChatPrompt& prompt,
    const std::vector<Token>& ids,
    const ServedModel& model,
    GenerationParams& params);

}  // namespace quince::server
