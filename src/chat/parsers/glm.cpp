#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "chat/parsers/grammar.h"
#include "chat/parsers/held_text.h"
#include "chat/parsers/parsers.h"

namespace quince {

namespace json = boost::json;

namespace {

constexpr std::string_view kBegin = "<tool_call>";
constexpr std::string_view kEnd = "</tool_call>";
constexpr std::string_view kKey = "<arg_key>";
constexpr std::string_view kKeyEnd = "</arg_key>";
constexpr std::string_view kValue = "<arg_value>";
constexpr std::string_view kValueEnd = "</arg_value>";

class GlmReader : public ToolCallReader {
 public:
  explicit GlmReader(const json::array& tools) : tools_(tools) {}

  void add(std::string_view text, AnswerDelta& out) override {
    held_ += text;
    while (!held_.empty() && step(out)) {
    }
  }

  // A call that is cut off before it has a name is text.
  void finish(AnswerDelta& out) override {
    if (state_ == State::text) {
      out.content += last_text(held_, begun_);
    } else if (state_ == State::name) {
      out.content += opening_ + held_;
    } else if (state_ == State::string) {
      give(escaped(held_), out);
    }
    held_.clear();
  }

 private:
  enum class State { text, name, key, value, string };

  bool step(AnswerDelta& out) {
    switch (state_) {
      case State::text:
        return step_text(out);
      case State::name:
        return step_name(out);
      case State::key:
        return step_key(out);
      case State::value:
        return step_value(out);
      case State::string:
        return step_string(out);
    }
    return false;
  }

  bool step_text(AnswerDelta& out) {
    if (!take_until(kBegin, held_, out.content, opening_)) {
      return false;
    }
    state_ = State::name;
    return true;
  }

  bool step_name(AnswerDelta& out) {
    const size_t mark = held_.find('<');
    if (mark == std::string::npos) {
      return false;
    }
    const std::string_view rest = std::string_view(held_).substr(mark);
    if (kKey.starts_with(rest) || kEnd.starts_with(rest)) {
      if (rest != kKey && rest != kEnd) {
        return false;
      }
    }
    const std::string_view name = trimmed(std::string_view(held_).substr(0, mark));
    if (name.empty() || !(rest.starts_with(kKey) || rest.starts_with(kEnd))) {  // no call
      out.content += opening_ + held_.substr(0, mark + 1);
      held_.erase(0, mark + 1);
      state_ = State::text;
      return true;
    }
    name_ = std::string(name);
    out.calls.push_back({begun_++, name_, ""});
    give("{", out);
    first_ = true;
    held_.erase(0, mark);
    state_ = State::key;
    return true;
  }

  // Spaces, and then a key, or the end.
  bool step_key(AnswerDelta& out) {
    held_.erase(0, leading_spaces(held_));
    if (held_.starts_with(kEnd)) {
      give("}", out);
      ++ended_;
      held_.erase(0, kEnd.size());
      state_ = State::text;
      return true;
    }
    if (kKey.starts_with(held_) || kEnd.starts_with(held_)) {
      return false;
    }
    if (!held_.starts_with(kKey)) {
      // Nothing that belongs here: up to the next mark it is nobody's.
      const size_t mark = held_.find('<', 1);
      held_.erase(0, mark);
      return mark != std::string::npos;
    }
    const size_t end = held_.find(kKeyEnd);
    const size_t value = end != std::string::npos ? held_.find(kValue, end) : std::string::npos;
    if (value == std::string::npos) {
      return false;
    }
    const std::string key(trimmed(std::string_view(held_).substr(kKey.size(), end - kKey.size())));
    give((first_ ? "" : ", ") + json::serialize(json::string_view(key)) + ": ", out);
    first_ = false;
    held_.erase(0, value + kValue.size());
    state_ = State::value;
    if (is_text_argument(tools_, name_, key)) {
      give("\"", out);
      state_ = State::string;
    }
    return true;
  }

  // A text comes as it is written, all else is JSON, or a text after all.
  bool step_value(AnswerDelta& out) {
    const size_t end = held_.find(kValueEnd);
    if (end == std::string::npos) {
      return false;
    }
    const std::string text = held_.substr(0, end);
    boost::system::error_code error;
    const json::value parsed = json::parse(trimmed(text), error);
    give(error ? json::serialize(json::string_view(text)) : json::serialize(parsed), out);
    held_.erase(0, end + kValueEnd.size());
    state_ = State::key;
    return true;
  }

  bool step_string(AnswerDelta& out) {
    const size_t end = held_.find(kValueEnd);
    if (end != std::string::npos) {
      give(escaped(std::string_view(held_).substr(0, end)) + "\"", out);
      held_.erase(0, end + kValueEnd.size());
      state_ = State::key;
      return true;
    }
    std::string_view safe(held_);
    safe.remove_suffix(begun_mark(held_, kValueEnd));
    give(escaped(safe), out);
    held_.erase(0, safe.size());
    return false;
  }

  void give(std::string arguments, AnswerDelta& out) const {
    if (!arguments.empty()) {
      out.calls.push_back({begun_ - 1, "", std::move(arguments)});
    }
  }

  const json::array tools_;
  State state_ = State::text;
  std::string held_;
  std::string opening_;  // spaces and mark of the call: text again, if it turns out to be none
  std::string name_;
  bool first_ = true;  // argument
};

ArgumentForm form() {
  return {
      .begin =
          [](std::string_view key, bool) {
            return lark_text(fmt::format("{}{}{}\n{}", kKey, key, kKeyEnd, kValue));
          },
      .end_text = kValueEnd,
      .behind = R"("\n")"};
}

}  // namespace

std::unique_ptr<ToolCallReader> make_glm(const AnswerReaderOptions& options) {
  return std::make_unique<GlmReader>(options.callable);
}

std::string glm_grammar(const json::array& tools, bool many, const Tokenizer& tokenizer) {
  std::string out = std::string("start: call") + (many ? R"( ("\n" call)*)" : "") +
                    "\ncall: " + lark_mark(tokenizer, kBegin) + " (";
  std::string rules;
  for (size_t i = 0; i < tools.size(); ++i) {
    out += fmt::format("{}tool_{}", i == 0 ? "" : " | ", i);
    const std::string name(tools[i].at("function").at("name").as_string());
    const std::string arguments =
        argument_rules(fmt::format("argument_{}", i), tools[i], form(), rules);
    rules += fmt::format("tool_{}: {}{}\n", i, lark_text(name + "\n"), arguments);
  }
  return out + ") " + lark_mark(tokenizer, kEnd) + "\n" + rules;
}

}  // namespace quince
