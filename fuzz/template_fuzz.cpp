// Chat templates, as text of unknown origin, and the conversations they are given. The input is a
// template, then optionally a NUL and the JSON of a list of messages.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include <boost/json.hpp>

#include "base/error.h"
#include "chat/template.h"

namespace json = boost::json;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(input.find('\0'), input.size());
  json::array messages{
      json::object{{"role", "system"}, {"content", "s"}},
      json::object{{"role", "user"}, {"content", "a<|end|>b"}},
      json::object{
          {"role", "assistant"},
          {"content", nullptr},
          {"tool_calls",
           json::array{json::object{
               {"id", "c"}, {"function", {{"name", "f"}, {"arguments", "{\"x\": [1, 2.5]}"}}}}}}}};
  boost::system::error_code error;
  if (end < input.size()) {
    const json::value parsed = json::parse(input.substr(end + 1), error);
    if (!error && parsed.is_array()) {
      messages = parsed.get_array();
    }
  }
  quince::RenderOptions options;
  options.tools = {json::object{{"type", "function"}, {"function", {{"name", "f"}}}}};
  try {
    const quince::ChatTemplate chat(input.substr(0, end), {{"bos_token", "<s>"}}, "fuzz");
    chat.render(messages, options);
  } catch (const quince::UserError&) {
  }
  return 0;
}
