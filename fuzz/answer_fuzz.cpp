// What models write, taken apart. The input is the way of writing (one byte), a seed for the cuts
// (one byte), then the text. However it is cut, it must be read the same.
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "chat/answer_reader.h"

namespace {

using namespace quince;

struct Read {
  std::string content;
  std::string reasoning;
  std::vector<std::string> calls;

  bool operator==(const Read&) const = default;

  void take(const AnswerDelta& delta) {
    content += delta.content;
    reasoning += delta.reasoning;
    for (const ToolCallDelta& call : delta.calls) {
      if (!call.name.empty()) {
        calls.push_back(call.name + "(");
      }
      calls.at(static_cast<size_t>(call.index)) += call.arguments;
    }
  }
};

Read read(const AnswerReaderOptions& options, std::string_view text, unsigned seed) {
  AnswerReader reader(options);
  Read out;
  while (!text.empty()) {
    seed = seed * 1103515245 + 12345;
    const size_t size =
        seed == 0 ? text.size() : std::min<size_t>(text.size(), 1 + (seed >> 16) % 9);
    AnswerDelta delta;
    reader.add(text.substr(0, size), delta);
    out.take(delta);
    text.remove_prefix(size);
  }
  AnswerDelta delta;
  reader.finish(delta);
  out.take(delta);
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) {
    return 0;
  }
  AnswerReaderOptions options;
  const auto formats = tool_formats();
  options.tools = &formats[data[0] % formats.size()];
  options.names = {"f", "g"};
  options.callable =
      boost::json::parse(
          R"([{"function": {"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}}])")
          .as_array();
  options.begins_in_reasoning = (data[0] & 0x40) != 0;
  if ((data[0] & 0x80) == 0) {
    options.reasoning = reasoning_tags("");
  }
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  if (read(options, text, data[1]) != read(options, text, data[1] + 1000U)) {
    throw std::logic_error("what was read depends on how it was cut");
  }
  return 0;
}
