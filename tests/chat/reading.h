// How answers are read, in whatever pieces they come.
#pragma once

#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "chat/answer_reader.h"

namespace quince::test {

struct Read {
  std::string content = {};
  std::string reasoning = {};
  std::vector<std::pair<std::string, std::string>> calls = {};
  int ended = 0;

  bool operator==(const Read&) const = default;
};

inline std::ostream& operator<<(std::ostream& out, const Read& read) {
  out << "content [" << read.content << "] reasoning [" << read.reasoning << "]";
  for (const auto& [name, arguments] : read.calls) {
    out << " call " << name << "(" << arguments << ")";
  }
  return out << " ended " << read.ended;
}

// How it is read when it comes in pieces of these sizes, the last one again and again.
inline Read read(
    const AnswerReaderOptions& options, std::string_view text, const std::vector<size_t>& sizes) {
  AnswerReader reader(options);
  Read out;
  std::vector<int> indexes;
  const auto take = [&](const AnswerDelta& delta) {
    out.content += delta.content;
    out.reasoning += delta.reasoning;
    for (const ToolCallDelta& call : delta.calls) {
      if (!call.name.empty()) {
        EXPECT_EQ(call.index, static_cast<int>(out.calls.size()));
        out.calls.emplace_back(call.name, call.arguments);
      } else {
        ASSERT_EQ(call.index + 1, static_cast<int>(out.calls.size()));
        out.calls.back().second += call.arguments;
      }
    }
  };
  for (size_t at = 0, n = 0; at < text.size(); ++n) {
    const size_t size = sizes[std::min(n, sizes.size() - 1)];
    AnswerDelta delta;
    reader.add(text.substr(at, size), delta);
    take(delta);
    at += size;
  }
  AnswerDelta delta;
  reader.finish(delta);
  take(delta);
  out.ended = reader.calls_ended();
  return out;
}

inline AnswerReaderOptions options(std::string_view format, bool reasoning = true) {
  AnswerReaderOptions options;
  for (const ToolFormat& row : tool_formats()) {
    if (row.name == format) {
      options.tools = &row;
    }
  }
  options.names = {"f", "get_weather"};
  if (reasoning) {
    options.reasoning = reasoning_tags("");
  }
  return options;
}

// In whatever pieces it comes.
inline void expect(const AnswerReaderOptions& options, std::string_view text, const Read& want) {
  EXPECT_EQ(read(options, text, {text.size()}), want) << text;
  EXPECT_EQ(read(options, text, {1}), want) << text;
  EXPECT_EQ(read(options, text, {7}), want) << text;
  for (size_t cut = 1; cut < text.size(); ++cut) {
    EXPECT_EQ(read(options, text, {cut, text.size()}), want) << text << " cut at " << cut;
  }
  std::mt19937 random(1);
  for (int i = 0; i < 50; ++i) {
    std::vector<size_t> sizes(40);
    for (size_t& size : sizes) {
      size = 1 + random() % 12;
    }
    EXPECT_EQ(read(options, text, sizes), want) << text;
  }
}

}  // namespace quince::test
