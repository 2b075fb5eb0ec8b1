#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "chat/parsers/grammar.h"
#include "chat/parsers/held_text.h"
#include "chat/parsers/parsers.h"
#include "chat/parsers/python_arguments.h"

namespace quince {

namespace json = boost::json;

namespace {

constexpr std::string_view kBlock = "```tool_code";
constexpr std::string_view kBlockEnd = "```";
constexpr std::string_view kLfm = "<|tool_call_start|>";
constexpr std::string_view kLfmEnd = "<|tool_call_end|>";

bool is_name(char c) {
  return c == '_' || c == '.' || c == '-' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
         (c >= 'A' && c <= 'Z');
}

// Calls stand between two marks, or are a list that is the answer's beginning.
class PythonReader : public ToolCallReader {
 public:
  // bare: the answer may begin with a list of calls.
  PythonReader(
      const AnswerReaderOptions& options, std::string_view begin, std::string_view end, bool bare)
      : names_(options.names),
        tools_(options.callable),
        begin_(begin),
        end_(end),
        state_(bare ? State::start : State::text) {}

  void add(std::string_view text, AnswerDelta& out) override {
    held_ += text;
    while (!held_.empty() && step(out)) {
    }
  }

  void finish(AnswerDelta& out) override {
    if (state_ == State::text) {
      out.content += last_text(held_, begun_);
    } else if (state_ == State::start || (state_ == State::calls && !called_)) {
      out.content += opening_ + held_;
    }
    held_.clear();
  }

 private:
  enum class State { start, text, calls, arguments, rest };

  bool step(AnswerDelta& out) {
    switch (state_) {
      case State::start:
        return step_start();
      case State::text:
        return step_text(out);
      case State::calls:
        return step_calls(out);
      case State::arguments:
        return step_arguments(out);
      case State::rest:
        return step_rest();
    }
    return false;
  }

  bool step_start() {
    const size_t spaces = leading_spaces(held_);
    if (spaces == held_.size()) {
      return false;
    }
    if (held_[spaces] != '[') {
      state_ = State::text;
      return true;
    }
    opening_ = held_.substr(0, spaces + 1);
    held_.erase(0, spaces + 1);
    begin_block("]");
    return true;
  }

  bool step_text(AnswerDelta& out) {
    if (!take_until(begin_, held_, out.content, opening_)) {
      return false;
    }
    begin_block(end_);
    return true;
  }

  void begin_block(std::string_view end) {
    state_ = State::calls;
    block_end_ = end;
    called_ = false;
  }

  // Past what stands around calls, to the next one's name, or the end.
  bool step_calls(AnswerDelta& out) {
    if (held_.starts_with(block_end_)) {
      end_block(out);
      return true;
    }
    if (block_end_.starts_with(held_)) {
      return false;
    }
    const char c = held_.front();
    if (is_space(c) || c == ',' || c == ';' || c == '[' || c == ']' || c == ')') {
      pass(1);
      return true;
    }
    const size_t size =
        static_cast<size_t>(std::find_if_not(held_.begin(), held_.end(), is_name) - held_.begin());
    const size_t next = size + leading_spaces(std::string_view(held_).substr(size));
    if (next == held_.size()) {
      return false;
    }
    if (size > 0 && held_[next] == '=') {  // its result gets a name
      pass(next + 1);
      return true;
    }
    const std::string name = held_.substr(0, size);
    if (held_[next] != '(' || size == 0 || (name != "print" && !is_tool(name))) {
      return no_call(out);
    }
    if (name != "print" || is_tool(name)) {
      out.calls.push_back({begun_++, name, ""});
      arguments_ = PythonArguments(parameters_of(name));
      called_ = true;
      state_ = State::arguments;
    }
    pass(next + 1);
    return true;
  }

  bool is_tool(std::string_view name) const {
    return std::find(names_.begin(), names_.end(), name) != names_.end();
  }

  void pass(size_t size) {
    opening_ += held_.substr(0, size);
    held_.erase(0, size);
  }

  void end_block(AnswerDelta& out) {
    if (!called_) {
      out.content += opening_ + std::string(block_end_);
    }
    held_.erase(0, block_end_.size());
    state_ = State::text;
  }

  bool no_call(AnswerDelta& out) {
    if (!called_) {
      out.content += opening_;
    }
    state_ = called_ ? State::rest : State::text;
    return true;
  }

  std::vector<std::string> parameters_of(std::string_view name) const {
    std::vector<std::string> parameters;
    for (const json::value& tool : tools_) {
      const json::object& function = tool.at("function").as_object();
      const json::value* schema = function.if_contains("parameters");
      const json::value* members = schema != nullptr && schema->is_object()
                                       ? schema->get_object().if_contains("properties")
                                       : nullptr;
      if (function.at("name") == json::string_view(name) && members != nullptr &&
          members->is_object()) {
        for (const auto& [key, member] : members->get_object()) {
          parameters.emplace_back(key);
        }
      }
    }
    return parameters;
  }

  bool step_arguments(AnswerDelta& out) {
    std::string given;
    arguments_.add(held_, given);
    if (!given.empty()) {
      out.calls.push_back({begun_ - 1, "", std::move(given)});
    }
    if (!arguments_.ended()) {
      return false;
    }
    ++ended_;
    state_ = State::calls;
    return true;
  }

  // Nothing of it is anybody's, up to the end.
  bool step_rest() {
    const size_t at = held_.find(block_end_);
    if (at == std::string::npos) {
      held_.erase(0, held_.size() - begun_mark(held_, block_end_));
      return false;
    }
    held_.erase(0, at + block_end_.size());
    state_ = State::text;
    return true;
  }

  const std::vector<std::string> names_;
  const json::array tools_;
  const std::string_view begin_;
  const std::string_view end_;
  std::string_view block_end_;
  PythonArguments arguments_;
  State state_;
  bool called_ = false;  // in this block
  std::string held_;
  std::string opening_;  // text again, if no call comes of it
};

// key=value, ... in the schema's order; what is not required may be left out. Values are as JSON
// has them, which Python would read but for three words.
std::string keyword_rules(size_t tool, const json::value& given, std::string& rules) {
  const json::value* parameters = given.at("function").as_object().if_contains("parameters");
  const json::object* schema = parameters != nullptr ? parameters->if_object() : nullptr;
  const json::value* members = schema != nullptr ? schema->if_contains("properties") : nullptr;
  size_t n = 0;
  if (members != nullptr && members->is_object()) {
    for (const auto& [key, member] : members->get_object()) {
      const std::string rule = fmt::format("argument_{}_{}", tool, n);
      const std::string next = fmt::format("argument_{}_{}", tool, ++n);
      const std::string pair = fmt::format("{} {}_value", lark_text(std::string(key) + "="), rule);
      const bool needed = is_required(*schema, key);
      rules += fmt::format("{}_value: %json {}\n", rule, member_schema(*schema, member));
      rules += fmt::format(
          "{}_head: {} {}_tail{}\n", rule, pair, next, needed ? "" : " | " + next + "_head");
      rules += fmt::format(
          "{0}_tail: {2}\", \" {1}{3} {4}_tail\n",
          rule,
          pair,
          needed ? "" : "(",
          needed ? "" : ")?",
          next);
    }
  }
  rules += fmt::format("argument_{0}_{1}_head: \"\"\nargument_{0}_{1}_tail: \"\"\n", tool, n);
  return fmt::format("argument_{}_0_head", tool);
}

}  // namespace

std::unique_ptr<ToolCallReader> make_tool_code(const AnswerReaderOptions& options) {
  return std::make_unique<PythonReader>(options, kBlock, kBlockEnd, true);
}

std::unique_ptr<ToolCallReader> make_lfm(const AnswerReaderOptions& options) {
  return std::make_unique<PythonReader>(options, kLfm, kLfmEnd, false);
}

std::string lfm_grammar(const json::array& tools, bool many, const Tokenizer& tokenizer) {
  std::string rules;
  std::string calls;
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string name(tools[i].at("function").at("name").as_string());
    calls += fmt::format("{}tool_{}", i == 0 ? "" : " | ", i);
    const std::string arguments = keyword_rules(i, tools[i], rules);
    rules += fmt::format("tool_{}: {} {} \")\"\n", i, lark_text(name + "("), arguments);
  }
  return fmt::format(
      "start: {} \"[\" call{} \"]\" {}\ncall: {}\n{}",
      lark_mark(tokenizer, kLfm),
      many ? R"( (", " call)*)" : "",
      lark_mark(tokenizer, kLfmEnd),
      calls,
      rules);
}

}  // namespace quince
