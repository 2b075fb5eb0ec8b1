// What a model writes, taken apart while it comes: the reasoning before the answer, the answer, and
// the tool calls in it, in the way of writing that the model was trained in. Nothing that may be
// markup is shown before it is known not to be. One thread at a time.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "tokenizer/tokenizer.h"

namespace quince {

struct ToolCallDelta {
  int index = 0;          // of the call in its answer
  std::string name;       // in the call's first delta only
  std::string arguments;  // JSON text, the next piece of it
  size_t at = 0;          // so many bytes of the delta's content stand before it; AnswerReader's
};

struct AnswerDelta {
  std::string content;
  std::string reasoning;
  std::vector<ToolCallDelta> calls;
};

// Reads calls in one way of writing.
class ToolCallReader {
 public:
  virtual ~ToolCallReader() = default;
  virtual void add(std::string_view text, AnswerDelta& out) = 0;
  virtual void finish(AnswerDelta& out) = 0;  // what was held back; a call that is cut off stays so
  int begun() const {
    return begun_;
  }
  int ended() const {
    return ended_;
  }
  virtual bool in_reasoning() const {  // of ways of writing that say so themselves
    return false;
  }

 protected:
  int begun_ = 0;
  int ended_ = 0;
};

struct AnswerReaderOptions;

struct ToolFormat {
  std::string_view name;
  bool (*is_of)(std::string_view chat_template);
  std::unique_ptr<ToolCallReader> (*make)(const AnswerReaderOptions& options);
  // A grammar (Lark) of one call of one of these tools or, if many, of several.
  std::string (*grammar)(const boost::json::array& tools, bool many, const Tokenizer& tokenizer);
  std::span<const std::string_view> marks;  // special tokens that are read; others leave no text
  bool whole = false;  // all of an answer is written in it, reasoning too, whether tools are called
  bool numbers_calls = false;  // the template shows ids, which have to be functions.NAME:NUMBER
};

// In the order in which they are tried; the last one is of every template.
std::span<const ToolFormat> tool_formats();
const ToolFormat& tool_format(std::string_view chat_template);
// Of models that are told of tools in words (chat/tool_text.h).
const ToolFormat& told_format();

struct ReasoningTags {
  std::string_view begin;
  std::string_view end;
  std::string_view token = begin;  // the special token, if it is one, in begin
};
ReasoningTags reasoning_tags(std::string_view chat_template);

struct AnswerReaderOptions {
  const ToolFormat* tools = nullptr;  // null: calls are not looked for
  std::vector<std::string> names;     // of the tools; empty: none is called
  boost::json::array callable = {};   // the tools, where more than their names is known
  ReasoningTags reasoning;            // empty: is not looked for
  bool begins_in_reasoning = false;   // the prompt ended with its begin
  bool split_reasoning = true;        // false: it is part of the answer; for formats that are whole
};

class AnswerReader {
 public:
  explicit AnswerReader(const AnswerReaderOptions& options);

  void add(std::string_view text, AnswerDelta& out);
  void finish(AnswerDelta& out);
  bool in_reasoning() const {
    return state_ == State::reasoning || (calls_ && calls_->in_reasoning());
  }
  int calls_begun() const {
    return calls_ ? calls_->begun() : 0;
  }
  int calls_ended() const {
    return calls_ ? calls_->ended() : 0;
  }

 private:
  enum class State { before, reasoning, after, answer };

  void add_before(AnswerDelta& out);
  void add_reasoning(AnswerDelta& out);
  void add_answer(std::string_view text, AnswerDelta& out);
  static void add_read(AnswerDelta read, AnswerDelta& out);
  void show_reasoning(std::string_view text, AnswerDelta& out);

  ReasoningTags tags_;
  std::unique_ptr<ToolCallReader> calls_;
  State state_;
  std::string held_;
  std::string spaces_;  // at the end of the reasoning: shown when more of it follows
  bool reasoned_ = false;
};

}  // namespace quince
