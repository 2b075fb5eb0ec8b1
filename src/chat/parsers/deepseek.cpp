#include <algorithm>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "chat/parsers/grammar.h"
#include "chat/parsers/held_text.h"
#include "chat/parsers/json_piece.h"
#include "chat/parsers/parsers.h"

namespace quince {

namespace {

// A section of calls, each with a separator between name and arguments.
struct SectionMarks {
  std::string_view calls;
  std::string_view calls_end;
  std::string_view call;
  std::string_view call_end;
  std::string_view separator;
};
constexpr SectionMarks kDeepseek = {
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>"};
// Names are functions.NAME:NUMBER there.
constexpr SectionMarks kKimi = {
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_end|>",
    "<|tool_call_argument_begin|>"};
constexpr std::string_view kFunctions = "functions.";

class SectionReader : public ToolCallReader {
 public:
  explicit SectionReader(const SectionMarks& marks) : marks_(marks) {}

  void add(std::string_view text, AnswerDelta& out) override {
    held_ += text;
    while (!held_.empty() && step(out)) {
    }
  }

  // A call that is cut off before it has a name is text; not so its marks.
  void finish(AnswerDelta& out) override {
    if (state_ == State::text || (state_ == State::name && begun_ == 0)) {
      out.content += last_text(held_, begun_);
    }
    held_.clear();
  }

 private:
  enum class State { text, between, name, arguments, value, over };

  bool step(AnswerDelta& out) {
    switch (state_) {
      case State::text:
        return step_text(out);
      case State::between:
        return step_between();
      case State::name:
        return step_name(out);
      case State::arguments:
        return step_arguments(out);
      case State::value:
        return step_value(out);
      case State::over:
        return step_over();
    }
    return false;
  }

  // Spaces before calls are not part of the answer.
  bool step_text(AnswerDelta& out) {
    const size_t at = std::min(held_.find(marks_.calls), held_.find(marks_.call));
    const bool found = at != std::string::npos;
    size_t safe =
        found ? at
              : held_.size() -
                    std::max(begun_mark(held_, marks_.calls), begun_mark(held_, marks_.call));
    safe -= trailing_spaces(std::string_view(held_).substr(0, safe));
    out.content += held_.substr(0, safe);
    held_.erase(0, found ? at : safe);
    if (found) {
      held_.erase(0, held_.starts_with(marks_.calls) ? marks_.calls.size() : 0);
      state_ = State::between;
    }
    return found;
  }

  bool step_between() {
    held_.erase(0, leading_spaces(held_));
    for (const std::string_view mark : {marks_.call, marks_.calls_end}) {
      if (held_.starts_with(mark)) {
        held_.erase(0, mark.size());
        state_ = mark == marks_.call ? State::name : State::text;
        return true;
      }
      if (mark.starts_with(held_)) {
        return false;
      }
    }
    state_ = State::text;  // no call
    return true;
  }

  // "name<sep>{", or "function<sep>name\n```json\n{".
  bool step_name(AnswerDelta& out) {
    const size_t separator = held_.find(marks_.separator);
    if (separator == std::string::npos) {
      return false;
    }
    const std::string_view behind =
        std::string_view(held_).substr(separator + marks_.separator.size());
    const size_t spaces = leading_spaces(behind);
    if (spaces == behind.size()) {
      return false;
    }
    std::string_view name = std::string_view(held_).substr(0, separator);
    size_t end = separator + marks_.separator.size();
    if (behind[spaces] != '{' && &marks_ != &kKimi) {
      const size_t line = behind.find('\n', spaces);
      const size_t mark = behind.find(marks_.call_end);
      if (line == std::string_view::npos && mark == std::string_view::npos) {
        return false;
      }
      name = behind.substr(0, std::min(line, mark));
      end += name.size();
    }
    name = plain_name(trimmed(name));
    if (name.empty()) {  // nobody is called
      held_.erase(0, end);
      state_ = State::over;
      return true;
    }
    out.calls.push_back({begun_++, std::string(name), ""});
    held_.erase(0, end);
    state_ = State::arguments;
    return true;
  }

  // Without what Kimi puts around it.
  std::string_view plain_name(std::string_view name) const {
    if (&marks_ == &kKimi) {
      name.remove_prefix(name.starts_with(kFunctions) ? kFunctions.size() : 0);
      name = name.substr(0, name.rfind(':'));
    }
    return name;
  }

  // Past the fence to the object, if there is one.
  bool step_arguments(AnswerDelta& out) {
    const size_t brace = held_.find('{');
    const size_t end = held_.find(marks_.call_end);
    if (brace < end) {
      held_.erase(0, brace);
      piece_ = {};
      state_ = State::value;
      return true;
    }
    if (end == std::string::npos) {
      return false;
    }
    out.calls.push_back({begun_ - 1, "", "{}"});
    end_call();
    return true;
  }

  bool step_value(AnswerDelta& out) {
    const size_t taken = piece_.add(held_);
    out.calls.push_back({begun_ - 1, "", held_.substr(0, taken)});
    held_.erase(0, taken);
    if (piece_.ended()) {
      end_call();
    }
    return piece_.ended();
  }

  void end_call() {
    ++ended_;
    state_ = State::over;
  }

  // Past the end of the call.
  bool step_over() {
    const size_t at = held_.find(marks_.call_end);
    if (at == std::string::npos) {
      held_.erase(0, held_.size() - begun_mark(held_, marks_.call_end));
      return false;
    }
    held_.erase(0, at + marks_.call_end.size());
    state_ = State::between;
    return true;
  }

  const SectionMarks& marks_;
  State state_ = State::text;
  JsonPiece piece_;
  std::string held_;
};

// What a section writes for one tool, as Lark.
using ToolRule = std::function<std::string(
    std::string_view name, const std::string& separator, const std::string& arguments)>;

std::string grammar(
    const SectionMarks& marks,
    const boost::json::array& tools,
    bool many,
    const Tokenizer& tokenizer,
    const ToolRule& tool_rule) {
  const auto mark = [&](std::string_view text) { return lark_mark(tokenizer, text); };
  const std::string separator = mark(marks.separator);
  std::string out = fmt::format(
      "start: {} call{} {}\ncall: {} (",
      mark(marks.calls),
      many ? "+" : "",
      mark(marks.calls_end),
      mark(marks.call));
  std::string rules;
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string_view name = tools[i].at("function").at("name").as_string();
    const std::string arguments = fmt::format("arguments_{}", i);
    out += fmt::format("{}tool_{}", i == 0 ? "" : " | ", i);
    rules += fmt::format(
        "tool_{}: {}\n{}: %json {}\n",
        i,
        tool_rule(name, separator, arguments),
        arguments,
        arguments_schema(tools[i]));
  }
  return out + ") " + mark(marks.call_end) + "\n" + rules;
}

}  // namespace

std::unique_ptr<ToolCallReader> make_deepseek(const AnswerReaderOptions&) {
  return std::make_unique<SectionReader>(kDeepseek);
}

std::unique_ptr<ToolCallReader> make_kimi(const AnswerReaderOptions&) {
  return std::make_unique<SectionReader>(kKimi);
}

std::string deepseek_v3_grammar(
    const boost::json::array& tools, bool many, const Tokenizer& tokenizer) {
  return grammar(
      kDeepseek,
      tools,
      many,
      tokenizer,
      [](auto name, const auto& separator, const auto& arguments) {
        return fmt::format(
            "{} {} {} {} {}",
            lark_text("function"),
            separator,
            lark_text(fmt::format("{}\n```json\n", name)),
            arguments,
            lark_text("\n```"));
      });
}

std::string deepseek_v31_grammar(
    const boost::json::array& tools, bool many, const Tokenizer& tokenizer) {
  return grammar(
      kDeepseek,
      tools,
      many,
      tokenizer,
      [](auto name, const auto& separator, const auto& arguments) {
        return fmt::format("{} {} {}", lark_text(name), separator, arguments);
      });
}

// The number is that of the call in the whole conversation, which is not known here.
std::string kimi_grammar(const boost::json::array& tools, bool many, const Tokenizer& tokenizer) {
  return grammar(
      kKimi, tools, many, tokenizer, [](auto name, const auto& separator, const auto& arguments) {
        return fmt::format(
            "{} /[0-9]{{1,3}}/ {} {}",
            lark_text(fmt::format("{}{}:", kFunctions, name)),
            separator,
            arguments);
      });
}

}  // namespace quince
