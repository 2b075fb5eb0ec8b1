// What models write that were told of tools in words: mostly what they were told, JSON between
// <tool_call> and </tool_call>; some leave out the tags, or put the JSON into a block of code, and
// Gemma 3 likes to write Python.
#include <array>
#include <map>
#include <utility>

#include <boost/json.hpp>

#include "chat/parsers/parsers.h"

namespace quince {

namespace {

// Readers behind each other: what is text to one goes to the next.
class ReaderChain : public ToolCallReader {
 public:
  explicit ReaderChain(const AnswerReaderOptions& options)
      : readers_{make_fenced_json(options), make_tool_code(options), make_hermes(options)} {}

  // A character at a time, so that calls come in the order of the text, whoever reads them.
  void add(std::string_view text, AnswerDelta& out) override {
    for (const char c : text) {
      pass(0, std::string_view(&c, 1), out);
    }
  }

  void finish(AnswerDelta& out) override {
    for (size_t i = 0; i < readers_.size(); ++i) {
      AnswerDelta read;
      readers_[i]->finish(read);
      give(i, std::move(read), out);
    }
  }

 private:
  void pass(size_t i, std::string_view text, AnswerDelta& out) {
    if (i == readers_.size()) {
      out.content += text;
      return;
    }
    AnswerDelta read;
    readers_[i]->add(text, read);
    give(i, std::move(read), out);
  }

  void give(size_t i, AnswerDelta read, AnswerDelta& out) {
    for (ToolCallDelta& call : read.calls) {
      const auto [place, is_new] = indexes_.try_emplace({i, call.index}, begun_);
      begun_ += is_new ? 1 : 0;
      call.index = place->second;
      if (call.name.empty() && !out.calls.empty() && out.calls.back().index == call.index) {
        out.calls.back().arguments += call.arguments;
      } else {
        out.calls.push_back(std::move(call));
      }
    }
    ended_ = 0;
    for (const auto& reader : readers_) {
      ended_ += reader->ended();
    }
    for (const char c : read.content) {
      pass(i + 1, std::string_view(&c, 1), out);
    }
  }

  std::array<std::unique_ptr<ToolCallReader>, 3> readers_;
  std::map<std::pair<size_t, int>, int> indexes_;  // of the calls of each, among all
};

}  // namespace

std::unique_ptr<ToolCallReader> make_told(const AnswerReaderOptions& options) {
  return std::make_unique<ReaderChain>(options);
}

}  // namespace quince
