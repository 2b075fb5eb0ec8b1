#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "chat/parsers/grammar.h"
#include "chat/parsers/held_text.h"
#include "chat/parsers/json_piece.h"
#include "chat/parsers/parsers.h"

namespace quince {

namespace {

constexpr std::string_view kStart = "<|start|>";
constexpr std::string_view kChannel = "<|channel|>";
constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kConstrain = "<|constrain|>";
constexpr std::array<std::string_view, 3> kEnds = {"<|end|>", "<|call|>", "<|return|>"};

// Messages, each with a header that says in which channel it is and to whom it goes:
//   <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...
// The first one's <|start|>assistant is part of the prompt. Nothing of a header is ever shown.
class HarmonyReader : public ToolCallReader {
 public:
  explicit HarmonyReader(const AnswerReaderOptions& options)
      : calls_(!options.names.empty()), splits_(options.split_reasoning) {}

  void add(std::string_view text, AnswerDelta& out) override {
    held_ += text;
    while (!held_.empty() && step(out)) {
    }
  }

  void finish(AnswerDelta& out) override {
    if (state_ == State::first && !std::string_view(kChannel).starts_with(held_)) {
      out.content += held_;
    } else if (state_ == State::body && !held_.starts_with("<|")) {  // but half of a mark is
                                                                     // nobody's
      give(held_, out);
    }
    held_.clear();
  }

  bool in_reasoning() const override {
    return state_ == State::body && kind_ == Kind::reasoning;
  }

 private:
  enum class State { first, header, body, between };
  enum class Kind { content, reasoning, call };

  bool step(AnswerDelta& out) {
    switch (state_) {
      case State::first:
        return step_first();
      case State::header:
        return step_header(out);
      case State::body:
        return step_body(out);
      case State::between:
        return step_between();
    }
    return false;
  }

  // An answer that is held to a form has no header: it is the message.
  bool step_first() {
    const std::string_view rest = std::string_view(held_).substr(leading_spaces(held_));
    for (const std::string_view mark : {kChannel, kStart, kMessage, std::string_view("to=")}) {
      if (rest.starts_with(mark)) {
        state_ = State::header;
        return true;
      }
      if (mark.starts_with(rest)) {
        return false;
      }
    }
    kind_ = Kind::content;
    state_ = State::body;
    return true;
  }

  bool step_header(AnswerDelta& out) {
    const size_t end = held_.find(kMessage);
    if (end == std::string::npos) {
      return false;
    }
    const std::string_view header = std::string_view(held_).substr(0, end);
    const size_t channel = header.find(kChannel);
    const bool analysis = channel != std::string_view::npos &&
                          header.substr(channel + kChannel.size()).starts_with("analysis");
    const std::string to = recipient(header);
    kind_ = !to.empty() && calls_ ? Kind::call : analysis ? Kind::reasoning : Kind::content;
    if (kind_ == Kind::call) {
      out.calls.push_back({begun_++, to, ""});
      piece_ = {};
    } else if (std::exchange(shown_[kind_ == Kind::reasoning ? 1 : 0], true)) {
      give("\n\n", out);
    }
    held_.erase(0, end + kMessage.size());
    state_ = State::body;
    return true;
  }

  // The name behind "to=", without the space of names that tools are in.
  static std::string recipient(std::string_view header) {
    const size_t at = header.find("to=");
    if (at == std::string_view::npos) {
      return "";
    }
    std::string_view name = header.substr(at + 3);
    name = name.substr(0, name.find_first_of(" \n\t<"));
    constexpr std::string_view kSpace = "functions.";
    name.remove_prefix(name.starts_with(kSpace) ? kSpace.size() : 0);
    return name == "assistant" ? "" : std::string(name);
  }

  bool step_body(AnswerDelta& out) {
    size_t end = std::string::npos;
    size_t wait = 0;
    for (const std::string_view mark : {kEnds[0], kEnds[1], kEnds[2], kStart, kChannel}) {
      end = std::min(end, held_.find(mark));
      wait = std::max(wait, begun_mark(held_, mark));
    }
    const bool over = end != std::string::npos;
    const size_t safe = over ? end : held_.size() - wait;
    give(std::string_view(held_).substr(0, safe), out);
    held_.erase(0, safe);
    if (over) {
      state_ = State::between;
    }
    return over;
  }

  // At the mark that ends a message, or at one that begins the next one without an end.
  bool step_between() {
    for (const std::string_view mark : kEnds) {
      if (held_.starts_with(mark)) {
        held_.erase(0, mark.size());
        return true;
      }
      if (mark.starts_with(held_)) {
        return false;
      }
    }
    for (const std::string_view mark : {kStart, kChannel}) {
      if (held_.starts_with(mark)) {
        state_ = State::header;
        return true;
      }
      if (mark.starts_with(held_)) {
        return false;
      }
    }
    held_.erase(0, std::max<size_t>(1, std::min(held_.find('<', 1), held_.size())));
    return true;  // of no message
  }

  void give(std::string_view text, AnswerDelta& out) {
    if (text.empty()) {
      return;
    }
    if (kind_ == Kind::reasoning) {
      (splits_ ? out.reasoning : out.content) += text;
    } else if (kind_ == Kind::content) {
      out.content += text;
    } else if (!piece_.ended()) {
      const size_t taken = piece_.add(text);  // what stands behind the arguments is not theirs
      out.calls.push_back({begun_ - 1, "", std::string(text.substr(0, taken))});
      ended_ += piece_.ended() ? 1 : 0;
    }
  }

  const bool calls_;
  const bool splits_;
  State state_ = State::first;
  Kind kind_ = Kind::content;
  std::array<bool, 2> shown_ = {false, false};  // a message of content, of reasoning
  JsonPiece piece_;
  std::string held_;
};

}  // namespace

std::unique_ptr<ToolCallReader> make_harmony(const AnswerReaderOptions& options) {
  return std::make_unique<HarmonyReader>(options);
}

// One call a message, and the model ends after it.
std::string harmony_grammar(const boost::json::array& tools, bool, const Tokenizer& tokenizer) {
  std::string out = "start: " + lark_mark(tokenizer, kChannel) + " (";
  std::string rules;
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string name(tools[i].at("function").at("name").as_string());
    out += fmt::format("{}tool_{}", i == 0 ? "" : " | ", i);
    rules += fmt::format(
        "tool_{0}: {1} {2} \"json\" {3} arguments_{0}\narguments_{0}: %json {4}\n",
        i,
        lark_text("commentary to=functions." + name + " "),
        lark_mark(tokenizer, kConstrain),
        lark_mark(tokenizer, kMessage),
        arguments_schema(tools[i]));
  }
  return out + ")\n" + rules;
}

}  // namespace quince
