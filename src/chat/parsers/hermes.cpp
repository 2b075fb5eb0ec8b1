#include <utility>

#include <fmt/format.h>

#include "chat/parsers/call_scanner.h"
#include "chat/parsers/grammar.h"
#include "chat/parsers/held_text.h"
#include "chat/parsers/parsers.h"
#include "chat/parsers/tagged_call.h"

namespace quince {

namespace json = boost::json;

namespace {

constexpr std::string_view kBegin = "<tool_call>";
constexpr std::string_view kEnd = "</tool_call>";
constexpr std::string_view kFunction = "<function=";

constexpr CallTags kCoder = {
    .call = kFunction,
    .call_end = "</function>",
    .key = "<parameter=",
    .value_end = "</parameter>",
    .lines = true};

// Between the tags stands a call as JSON, a list of them (SmolLM2), or one with tags of its own
// (Qwen3-Coder, which sometimes forgets the tags around it: bare).
class HermesReader : public ToolCallReader {
 public:
  HermesReader(const json::array& tools, bool bare)
      : tools_(tools), bare_(bare), function_(kCoder, tools_) {}
  HermesReader(const HermesReader&) = delete;
  HermesReader& operator=(const HermesReader&) = delete;

  void add(std::string_view text, AnswerDelta& out) override {
    held_ += text;
    while (!held_.empty() && step(out)) {
    }
  }

  // A call that is cut off before it has a name is text.
  void finish(AnswerDelta& out) override {
    if (state_ == State::text) {
      out.content += last_text(held_, begun_);
    } else if (state_ == State::call && !calling_ && listed_ == 0) {
      out.content += as_text() + held_;
    } else if (state_ == State::function && !function_.named()) {
      out.content += opening_ + held_;
    } else if (state_ == State::function) {
      function_.finish(begun_ - 1, held_, out);
    }
    held_.clear();
  }

 private:
  enum class State { text, call, function, list, after };

  bool step(AnswerDelta& out) {
    switch (state_) {
      case State::text:
        return step_text(out);
      case State::call:
        return step_call(out);
      case State::function:
        return step_function(out);
      case State::list:
        return step_list();
      case State::after:
        return step_after();
    }
    return false;
  }

  // Spaces before a call are not part of the answer.
  bool step_text(AnswerDelta& out) {
    const std::string_view mark =
        take_until({kBegin, bare_ ? kFunction : ""}, held_, out.content, opening_);
    if (mark.empty()) {
      return false;
    }
    begin_call(mark == kBegin ? State::call : State::function);
    in_list_ = false;
    listed_ = 0;
    return true;
  }

  void begin_call(State state) {
    state_ = state;
    scanner_ = {};
    calling_ = false;
    function_ = TaggedCall(kCoder, tools_);
  }

  bool step_call(AnswerDelta& out) {
    const size_t spaces = leading_spaces(held_);
    const std::string_view rest = std::string_view(held_).substr(spaces);
    if (scanner_.raw().find('{') == std::string::npos && !in_list_) {
      if (rest.empty() || kFunction.starts_with(rest)) {
        if (rest != kFunction) {
          return false;
        }
      }
      if (rest.starts_with(kFunction) || rest.front() == '[') {
        in_list_ = rest.front() == '[';
        const size_t size = spaces + (in_list_ ? 1 : kFunction.size());
        opening_ += held_.substr(0, size);
        held_.erase(0, size);
        state_ = in_list_ ? State::list : State::function;
        return true;
      }
    }
    held_.erase(0, scanner_.add(held_));
    if (scanner_.broken()) {  // no call: as it was written
      out.content += as_text();
      state_ = State::text;
      return true;
    }
    if (scanner_.named() && !std::exchange(calling_, true)) {
      out.calls.push_back({begun_++, scanner_.name(), ""});
    }
    std::string arguments = scanner_.take_arguments();
    if (!arguments.empty()) {
      out.calls.push_back({begun_ - 1, "", std::move(arguments)});
    }
    if (!scanner_.ended()) {
      return false;
    }
    if (calling_) {
      ++ended_;
      listed_ += in_list_ ? 1 : 0;
      state_ = in_list_ ? State::list : State::after;
    } else {
      out.content += as_text();
      state_ = State::text;
    }
    return true;
  }

  // What turned out to be no call, as it was written; behind others in a list it is nobody's.
  std::string as_text() const {
    return listed_ > 0 ? "" : opening_ + scanner_.raw();
  }

  bool step_function(AnswerDelta& out) {
    const bool was_named = function_.named();
    const TaggedCall::State state = function_.read(was_named ? begun_ - 1 : begun_, held_, out);
    begun_ += function_.named() && !was_named ? 1 : 0;
    if (state == TaggedCall::State::none) {
      out.content += opening_;
      state_ = State::text;
    } else if (state == TaggedCall::State::ended) {
      ++ended_;
      state_ = State::after;
    } else {
      return false;
    }
    return true;
  }

  // The next call of a list, or its end.
  bool step_list() {
    size_t at = 0;
    while (at < held_.size() && (is_space(held_[at]) || held_[at] == ',')) {
      ++at;
    }
    opening_ += held_.substr(0, at);
    held_.erase(0, at);
    if (held_.empty()) {
      return false;
    }
    if (held_.front() == ']') {
      held_.erase(0, 1);
      state_ = State::after;
    } else {
      begin_call(State::call);
    }
    return true;
  }

  bool step_after() {
    const size_t spaces = leading_spaces(held_);
    const std::string_view rest = std::string_view(held_).substr(spaces);
    if (rest.empty() || (rest.size() < kEnd.size() && kEnd.starts_with(rest))) {
      return false;
    }
    held_.erase(0, spaces + (rest.starts_with(kEnd) ? kEnd.size() : 0));
    state_ = State::text;
    return true;
  }

  const json::array tools_;
  const bool bare_;
  State state_ = State::text;
  CallScanner scanner_;
  TaggedCall function_;
  std::string held_;
  std::string opening_;  // spaces and mark of the call: text again, if it turns out to be none
  bool calling_ = false;
  bool in_list_ = false;
  int listed_ = 0;  // calls before this one in its list
};

ArgumentForm form() {
  return {
      .begin = [](std::string_view key,
                  bool) { return lark_text(fmt::format("{}{}>\n", kCoder.key, key)); },
      .end_text = "\n</parameter>",
      .behind = R"("\n")"};
}

}  // namespace

std::unique_ptr<ToolCallReader> make_hermes(const AnswerReaderOptions& options) {
  return std::make_unique<HermesReader>(options.callable, false);
}

std::unique_ptr<ToolCallReader> make_qwen_coder(const AnswerReaderOptions& options) {
  return std::make_unique<HermesReader>(options.callable, true);
}

std::string hermes_grammar(const json::array& tools, bool many, const Tokenizer&) {
  return std::string("start: call") + (many ? R"( ("\n" call)*)" : "") +
         "\ncall: \"<tool_call>\\n\" body \"\\n</tool_call>\"\nbody: %json " +
         json::serialize(call_schema(tools, "arguments")) + "\n";
}

std::string qwen_coder_grammar(const json::array& tools, bool many, const Tokenizer& tokenizer) {
  std::string rules;
  std::string calls;
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string_view name = tools[i].at("function").at("name").as_string();
    const std::string arguments =
        argument_rules(fmt::format("argument_{}", i), tools[i], form(), rules);
    calls += fmt::format("{}tool_{}", i == 0 ? "" : " | ", i);
    rules += fmt::format(
        "tool_{}: {}{}\n", i, lark_text(fmt::format("\n{}{}>\n", kFunction, name)), arguments);
  }
  return fmt::format(
      "start: call{}\ncall: {} ({}) \"</function>\\n\" {}\n{}",
      many ? R"( ("\n" call)*)" : "",
      lark_mark(tokenizer, kBegin),
      calls,
      lark_mark(tokenizer, kEnd),
      rules);
}

}  // namespace quince
