#include <fmt/format.h>

#include "chat/parsers/grammar.h"
#include "chat/parsers/held_text.h"
#include "chat/parsers/parsers.h"
#include "chat/parsers/tagged_call.h"

namespace quince {

namespace json = boost::json;

namespace {

// What stands around all of an answer's calls, and each of them.
struct InvokeMarks {
  std::string_view begin;
  std::string_view end;
  CallTags call;
};

constexpr CallTags kDsmlCall = {
    .call = "<｜DSML｜invoke name=\"",
    .call_end = "</｜DSML｜invoke>",
    .key = "<｜DSML｜parameter name=\"",
    .value_end = "</｜DSML｜parameter>",
    .quoted = true};
constexpr InvokeMarks kDeepseekV32 = {
    "<｜DSML｜function_calls>", "</｜DSML｜function_calls>", kDsmlCall};
constexpr InvokeMarks kDeepseekV4 = {"<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>", kDsmlCall};
constexpr InvokeMarks kMinimax = {
    "<minimax:tool_call>",
    "</minimax:tool_call>",
    {.call = "<invoke name=\"",
     .call_end = "</invoke>",
     .key = "<parameter name=\"",
     .value_end = "</parameter>",
     .quoted = true}};

class InvokeReader : public ToolCallReader {
 public:
  InvokeReader(const InvokeMarks& marks, const json::array& tools)
      : marks_(marks), tools_(tools), call_(marks.call, tools_) {}
  InvokeReader(const InvokeReader&) = delete;
  InvokeReader& operator=(const InvokeReader&) = delete;

  void add(std::string_view text, AnswerDelta& out) override {
    held_ += text;
    while (!held_.empty() && step(out)) {
    }
  }

  // What has not become a call is text.
  void finish(AnswerDelta& out) override {
    if (state_ == State::text) {
      out.content += last_text(held_, begun_);
    } else if (state_ == State::call && call_.named()) {
      call_.finish(begun_ - 1, held_, out);
    } else if (begun_ == 0) {
      out.content += opening_ + held_;
    }
    held_.clear();
  }

 private:
  enum class State { text, between, call };

  bool step(AnswerDelta& out) {
    switch (state_) {
      case State::text:
        if (!take_until(marks_.begin, held_, out.content, opening_)) {
          return false;
        }
        state_ = State::between;
        return true;
      case State::between:
        return step_between(out);
      case State::call:
        return step_call(out);
    }
    return false;
  }

  // A call, or the end of all; anything else is text again.
  bool step_between(AnswerDelta& out) {
    const size_t spaces = leading_spaces(held_);
    const std::string_view rest = std::string_view(held_).substr(spaces);
    for (const std::string_view mark : {marks_.call.call, marks_.end}) {
      if (rest.starts_with(mark)) {
        opening_ += held_.substr(0, spaces + mark.size());
        held_.erase(0, spaces + mark.size());
        state_ = mark == marks_.end ? State::text : State::call;
        call_ = TaggedCall(marks_.call, tools_);
        return true;
      }
      if (mark.starts_with(rest)) {
        return false;
      }
    }
    out.content += begun_ == 0 ? opening_ : "";
    state_ = State::text;
    return true;
  }

  bool step_call(AnswerDelta& out) {
    const bool was_named = call_.named();
    const TaggedCall::State state = call_.read(was_named ? begun_ - 1 : begun_, held_, out);
    begun_ += call_.named() && !was_named ? 1 : 0;
    if (state == TaggedCall::State::none) {
      out.content += begun_ == 0 ? opening_ : "";
      state_ = State::text;
    } else if (state == TaggedCall::State::ended) {
      ++ended_;
      state_ = State::between;
    } else {
      return false;
    }
    return true;
  }

  const InvokeMarks& marks_;
  const json::array tools_;
  TaggedCall call_;
  State state_ = State::text;
  std::string held_;
  std::string opening_;  // text again, if no call comes of it
};

// A tag of DeepSeek's has a special token in it, where the vocabulary has one.
std::string tag(const Tokenizer& tokenizer, std::string_view text) {
  constexpr std::string_view kToken = "｜DSML｜";
  const size_t at = text.find(kToken);
  if (at == std::string_view::npos || lark_mark(tokenizer, kToken) == lark_text(kToken)) {
    return lark_text(text);
  }
  return fmt::format(
      "{} {} {}",
      lark_text(text.substr(0, at)),
      lark_mark(tokenizer, kToken),
      lark_text(text.substr(at + kToken.size())));
}

// Up to the special token, where the end of a value has one.
size_t plain_end(const Tokenizer& tokenizer, std::string_view text) {
  return tag(tokenizer, text) == lark_text(text) ? text.size() : text.find("｜");
}

std::string grammar(
    const json::array& tools, bool many, const Tokenizer& tokenizer, const InvokeMarks& marks) {
  const bool says_type = marks.call.key.find("｜") != std::string_view::npos;
  const std::string_view value_end = marks.call.value_end;
  const size_t plain = plain_end(tokenizer, value_end);
  const ArgumentForm form = {
      .begin =
          [&](std::string_view key, bool is_text) {
            const char* type = !says_type ? "" : is_text ? " string=\"true\"" : " string=\"false\"";
            return tag(tokenizer, fmt::format("{}{}\"{}>", marks.call.key, key, type));
          },
      .end_text = value_end.substr(0, plain),
      .behind =
          plain == value_end.size()
              ? R"("\n")"
              : lark_mark(tokenizer, "｜DSML｜") + " " +
                    lark_text(
                        std::string(value_end.substr(plain + std::string_view("｜DSML｜").size())) +
                        "\n")};
  std::string rules;
  std::string calls;
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string_view name = tools[i].at("function").at("name").as_string();
    calls += fmt::format("{}tool_{}", i == 0 ? "" : " | ", i);
    const std::string arguments =
        argument_rules(fmt::format("argument_{}", i), tools[i], form, rules);
    rules += fmt::format(
        "tool_{}: {}{}\n",
        i,
        tag(tokenizer, fmt::format("{}{}\">\n", marks.call.call, name)),
        arguments);
  }
  return fmt::format(
      "start: {} call{} {}\ncall: ({}) {}\n{}",
      tag(tokenizer, std::string(marks.begin) + "\n"),
      many ? "+" : "",
      tag(tokenizer, marks.end),
      calls,
      tag(tokenizer, std::string(marks.call.call_end) + "\n"),
      rules);
}

}  // namespace

std::unique_ptr<ToolCallReader> make_deepseek_v32(const AnswerReaderOptions& options) {
  return std::make_unique<InvokeReader>(kDeepseekV32, options.callable);
}
std::unique_ptr<ToolCallReader> make_deepseek_v4(const AnswerReaderOptions& options) {
  return std::make_unique<InvokeReader>(kDeepseekV4, options.callable);
}
std::unique_ptr<ToolCallReader> make_minimax(const AnswerReaderOptions& options) {
  return std::make_unique<InvokeReader>(kMinimax, options.callable);
}

std::string deepseek_v32_grammar(const json::array& tools, bool many, const Tokenizer& tokenizer) {
  return grammar(tools, many, tokenizer, kDeepseekV32);
}
std::string deepseek_v4_grammar(const json::array& tools, bool many, const Tokenizer& tokenizer) {
  return grammar(tools, many, tokenizer, kDeepseekV4);
}
std::string minimax_grammar(const json::array& tools, bool many, const Tokenizer& tokenizer) {
  return grammar(tools, many, tokenizer, kMinimax);
}

}  // namespace quince
