#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "chat/parsers/call_scanner.h"
#include "chat/parsers/held_text.h"
#include "chat/parsers/parsers.h"

namespace quince {

namespace {

constexpr std::string_view kTag = "<|python_tag|>";
constexpr std::string_view kFence = "```";

// An answer is calls from its first character on, or it is none. Until it is known which, all of it
// is held back.
class PlainJsonReader : public ToolCallReader {
 public:
  // fenced: it may stand in a block of code.
  PlainJsonReader(std::vector<std::string> names, bool fenced)
      : names_(std::move(names)), fenced_(fenced) {}

  void add(std::string_view text, AnswerDelta& out) override {
    if (is_text_) {
      out.content += text;
      return;
    }
    held_ += text;
    while (!held_.empty() && !is_text_ && step(out)) {
    }
  }

  void finish(AnswerDelta& out) override {
    if (!is_text_ && !calling_) {
      out.content += before_ + scanner_.raw() + held_;
    }
    held_.clear();
  }

 private:
  // False: more has to come.
  bool step(AnswerDelta& out) {
    if (scanner_.raw().empty() && !begin()) {
      if (!is_text_) {
        return false;
      }
      give_up(out);
      return false;
    }
    held_.erase(0, scanner_.add(held_));
    const bool known = scanner_.named() &&
                       std::find(names_.begin(), names_.end(), scanner_.name()) != names_.end();
    if (known && !std::exchange(calling_, true)) {
      out.calls.push_back({begun_++, scanner_.name(), ""});
    }
    if (calling_) {
      std::string arguments = scanner_.take_arguments();
      if (!arguments.empty()) {
        out.calls.push_back({begun_ - 1, "", std::move(arguments)});
      }
    } else if (scanner_.broken() || scanner_.ended() || scanner_.named()) {
      give_up(out);
      return false;
    }
    if (scanner_.ended()) {
      ++ended_;
      scanner_ = {};
      calling_ = false;
      before_.clear();
    }
    return !held_.empty();
  }

  // Past spaces, the tag, and what stands between two calls. False: not yet, or never.
  bool begin() {
    size_t at = 0;
    while (at < held_.size() &&
           (is_space(held_[at]) || (begun_ > 0 && (held_[at] == ';' || held_[at] == ',')))) {
      ++at;
    }
    const std::string_view rest = std::string_view(held_).substr(at);
    if (rest.starts_with(kTag)) {
      before_ += held_.substr(0, at + kTag.size());
      held_.erase(0, at + kTag.size());
      return begin();
    }
    if (rest.empty() || kTag.starts_with(rest) || (fenced_ && kFence.starts_with(rest))) {
      return wait_for_fence(rest, at);
    }
    if (fenced_ && rest.starts_with(kFence)) {
      return pass_fence(at);
    }
    if (rest.front() != '{') {
      is_text_ = true;
      return false;
    }
    before_ += held_.substr(0, at);
    held_.erase(0, at);
    return true;
  }

  // Of a fence that is all there is: behind a call it is the block's end.
  bool wait_for_fence(std::string_view rest, size_t at) {
    if (fenced_ && rest == kFence && begun_ > 0) {
      held_.erase(0, at + kFence.size());
    }
    return false;
  }

  // Past the line that begins a block.
  bool pass_fence(size_t at) {
    if (begun_ > 0) {
      held_.erase(0, at + kFence.size());
      return begin();
    }
    const size_t line = held_.find('\n', at);
    if (line == std::string::npos) {
      return false;
    }
    before_ += held_.substr(0, line + 1);
    held_.erase(0, line + 1);
    return begin();
  }

  void give_up(AnswerDelta& out) {
    is_text_ = true;
    out.content += std::exchange(before_, {}) + scanner_.raw() + std::exchange(held_, {});
    scanner_ = {};
  }

  std::vector<std::string> names_;
  bool fenced_;
  CallScanner scanner_;
  std::string held_;
  std::string before_;  // was passed over before the call
  bool calling_ = false;
  bool is_text_ = false;
};

}  // namespace

std::unique_ptr<ToolCallReader> make_plain_json(const AnswerReaderOptions& options) {
  return std::make_unique<PlainJsonReader>(options.names, false);
}

std::unique_ptr<ToolCallReader> make_fenced_json(const AnswerReaderOptions& options) {
  return std::make_unique<PlainJsonReader>(options.names, true);
}

std::string llama_grammar(const boost::json::array& tools, bool, const Tokenizer&) {
  return "start: %json " + boost::json::serialize(call_schema(tools, "parameters")) + "\n";
}

std::string json_grammar(const boost::json::array& tools, bool, const Tokenizer&) {
  return "start: %json " + boost::json::serialize(call_schema(tools, "arguments")) + "\n";
}

}  // namespace quince
