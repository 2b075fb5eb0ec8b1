// Of every way of writing calls: whatever a model writes, well formed or not, is read in the same
// way in whatever pieces it comes.
#include <gtest/gtest.h>

#include "chat/reading.h"

namespace quince::test {

namespace {

// What texts are made of: the marks of the format and those that all have in common, whole or cut.
std::string random_text(std::mt19937& random, const ToolFormat& format) {
  static const std::vector<std::string> kPieces = {
      "f",
      "get_weather",
      "other",
      "hello",
      "é",
      " ",
      "\n",
      "\n\n",
      "{",
      "}",
      "[",
      "]",
      "(",
      ")",
      "\"",
      "'",
      "\\",
      ":",
      ",",
      "=",
      "<",
      ">",
      "</",
      "|",
      "`",
      "```",
      "```json\n",
      "```tool_code\n",
      "True",
      "-1.5",
      "null",
      "{}",
      "[]",
      R"({"name": "f", "arguments": {"a": [1, "}"]}})",
      R"({"name": "f", )",
      R"("arguments": {"q": "x\"y"})",
      "f(q='a', n=[1, (2,)])",
      "print(f())",
      "<function=f>",
      "</function>",
      "<parameter=text>",
      "</parameter>",
      "<tool_call>",
      "</tool_call>",
      "<think>",
      "</think>",
      "call:f{a:1}",
      "functions.f:0",
      "to=functions.f",
      "<invoke name=\"f\">",
      "</invoke>",
      "<parameter name=\"text\">",
      "<｜DSML｜invoke name=\"f\">",
      "</｜DSML｜invoke>",
      "<｜DSML｜parameter name=\"text\" string=\"true\">",
      "</｜DSML｜parameter>",
      "<｜DSML｜function_calls>",
      "</｜DSML｜function_calls>",
      "<｜DSML｜tool_calls>",
      "</｜DSML｜tool_calls>"};
  std::string text;
  for (size_t left = 1 + random() % 12; left > 0; --left) {
    std::string piece = format.marks.empty() || random() % 3 != 0
                            ? kPieces[random() % kPieces.size()]
                            : std::string(format.marks[random() % format.marks.size()]);
    if (random() % 8 == 0) {
      piece.resize(1 + random() % piece.size());
    }
    text += piece;
  }
  return text;
}

TEST(Pieces, NeverMatter) {
  std::mt19937 random(7);
  for (const ToolFormat& format : tool_formats()) {
    AnswerReaderOptions reader = options(format.name);
    reader.callable = boost::json::parse(
                          R"([{"type": "function", "function": {"name": "f", "parameters": {
                "type": "object", "properties": {"text": {"type": "string"}}}}}])")
                          .as_array();
    for (int round = 0; round < 4000; ++round) {
      const std::string text = random_text(random, format);
      const Read whole = read(reader, text, {text.size()});
      ASSERT_EQ(read(reader, text, {1}), whole) << format.name << "\n" << text;
      std::vector<size_t> sizes(10);
      for (size_t& size : sizes) {
        size = 1 + random() % 15;
      }
      ASSERT_EQ(read(reader, text, sizes), whole) << format.name << "\n" << text;
    }
  }
}

}  // namespace

}  // namespace quince::test
