#include <utility>

#include <fmt/format.h>

#include "chat/parsers/call_scanner.h"
#include "chat/parsers/held_text.h"
#include "chat/parsers/json_piece.h"
#include "chat/parsers/parsers.h"

namespace quince {

namespace {

constexpr std::string_view kMark = "[TOOL_CALLS]";
constexpr std::string_view kArguments = "[ARGS]";

class MistralReader : public ToolCallReader {
 public:
  void add(std::string_view text, AnswerDelta& out) override {
    held_ += text;
    while (!held_.empty() && step(out)) {
    }
  }

  void finish(AnswerDelta& out) override {
    if (state_ == State::text || (state_ == State::start && begun_ == 0)) {
      out.content += held_;
    } else if (state_ == State::list && !calling_ && !scanner_.raw().empty()) {
      out.content += scanner_.raw() + held_;
    }
    held_.clear();
  }

 private:
  enum class State { text, start, list, arguments, over };

  bool step(AnswerDelta& out) {
    switch (state_) {
      case State::text:
        return step_text(out);
      case State::start:
        return step_start(out);
      case State::list:
        return step_list(out);
      case State::arguments:
        return step_arguments(out);
      case State::over:
        held_.clear();  // closing brackets
        return false;
    }
    return false;
  }

  bool step_text(AnswerDelta& out) {
    const size_t at = held_.find(kMark);
    const size_t safe = at != std::string::npos ? at : held_.size() - begun_mark(held_, kMark);
    out.content += held_.substr(0, safe);
    held_.erase(0, safe + (at != std::string::npos ? kMark.size() : 0));
    if (at == std::string::npos) {
      return false;
    }
    state_ = State::start;
    return true;
  }

  // A list, one object, or a name.
  bool step_start(AnswerDelta& out) {
    held_.erase(0, leading_spaces(held_));
    if (held_.empty()) {
      return false;
    }
    if (held_.front() == '[' || held_.front() == '{') {
      held_.erase(0, held_.front() == '[' ? 1 : 0);
      begin_call(State::list);
      return true;
    }
    const size_t brace = held_.find('{');
    if (brace == std::string::npos) {
      return false;
    }
    std::string name = held_.substr(0, brace);
    const size_t mark = name.find(kArguments);
    name.resize(std::min(mark, name.size()));
    name.resize(name.size() - trailing_spaces(name));
    if (const size_t id = name.find("[CALL_ID]"); id != std::string::npos) {
      name.resize(id);
    }
    if (name.empty()) {
      out.content += std::string(kMark) + held_.substr(0, brace);
      held_.erase(0, brace);
      state_ = State::text;
      return true;
    }
    held_.erase(0, brace);
    out.calls.push_back({begun_++, name, ""});
    begin_call(State::arguments);
    return true;
  }

  void begin_call(State state) {
    state_ = state;
    scanner_ = {};
    piece_ = {};
    calling_ = false;
  }

  bool step_list(AnswerDelta& out) {
    if (scanner_.raw().empty()) {
      size_t at = 0;
      while (at < held_.size() && (is_space(held_[at]) || held_[at] == ',')) {
        ++at;
      }
      held_.erase(0, at);
      if (held_.empty()) {
        return false;
      }
      if (held_.front() != '{') {
        state_ = State::over;
        return true;
      }
    }
    held_.erase(0, scanner_.add(held_));
    if (scanner_.named() && !std::exchange(calling_, true)) {
      out.calls.push_back({begun_++, scanner_.name(), ""});
    }
    give_arguments(out);
    if (scanner_.ended()) {
      ended_ += calling_ ? 1 : 0;
      begin_call(State::list);
    }
    return !held_.empty();
  }

  bool step_arguments(AnswerDelta& out) {
    const size_t taken = piece_.add(held_);
    out.calls.push_back({begun_ - 1, "", held_.substr(0, taken)});
    held_.erase(0, taken);
    if (!piece_.ended()) {
      return false;
    }
    ++ended_;
    state_ = State::text;  // another [TOOL_CALLS] may follow
    return true;
  }

  void give_arguments(AnswerDelta& out) {
    std::string arguments = scanner_.take_arguments();
    if (!arguments.empty()) {
      out.calls.push_back({begun_ - 1, "", std::move(arguments)});
    }
  }

  State state_ = State::text;
  CallScanner scanner_;
  std::string held_;
  bool calling_ = false;
  JsonPiece piece_;  // arguments that stand alone
};

}  // namespace

std::unique_ptr<ToolCallReader> make_mistral(const AnswerReaderOptions&) {
  return std::make_unique<MistralReader>();
}

std::string mistral_grammar(
    const boost::json::array& tools, bool many, const Tokenizer& tokenizer) {
  const auto mark = tokenizer.token_to_id(kMark);
  const std::string begin =
      mark && tokenizer.is_special(*mark) ? fmt::format("<[{}]>", *mark) : "\"[TOOL_CALLS]\"";
  boost::json::object list{
      {"type", "array"}, {"items", call_schema(tools, "arguments", "#/items")}, {"minItems", 1}};
  if (!many) {
    list["maxItems"] = 1;
  }
  return "start: " + begin + " calls\ncalls: %json " + boost::json::serialize(list) + "\n";
}

}  // namespace quince
