#include "server/generation.h"

#include <algorithm>
#include <utility>

#include "server/errors.h"

namespace quince::server {

namespace {

// What both kinds have in common: the answers, and word of them to whoever counts.
class Running {
 public:
  explicit Running(GenerationPlan plan) : plan_(std::move(plan)) {
    for (TokenStream& stream : plan_.request->streams) {
      answers_.emplace_back(stream, *plan_.model, plan_.params);
    }
    plan_.active.add(plan_.request);
  }
  ~Running() {
    plan_.active.remove(*plan_.request);
    for (size_t i = 0; i < plan_.request->streams.size(); ++i) {
      TokenStream& stream = plan_.request->streams[i];
      stream.on_ready(nullptr);
      stream.cancel();
      if (stream.stats().begun) {
        plan_.slots[i].begun();
      }
    }
    if (left_ > 0) {
      plan_.observer->gone();
    }
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  void start(const std::function<void()>& notify) {
    left_ = answers_.size();
    for (TokenStream& stream : plan_.request->streams) {
      stream.on_ready(notify);
    }
  }

  std::vector<Answer>& answers() {
    return answers_;
  }
  AnswerFormat& format() {
    return *plan_.format;
  }
  const GenerationParams& params() const {
    return plan_.params;
  }

  Delta take(size_t i, size_t max_bytes) {
    Answer& answer = answers_[i];
    const int before = answer.tokens();
    Delta delta = answer.take(max_bytes);
    plan_.slots[i].add(delta.ids);
    const int tokens = answer.tokens() - before;
    if (tokens > 0) {
      plan_.observer->tokens(tokens);
    }
    if (answer.ended()) {
      --left_;
      plan_.observer->end(answer.end());
    }
    return delta;
  }
  bool ended() const {
    return left_ == 0;
  }
  void fail() {
    left_ = 0;
    plan_.observer->failed();
  }

  bool has_token() const {
    return std::any_of(answers_.begin(), answers_.end(), [](const Answer& answer) {
      return answer.stream().ready();
    });
  }

  // While they run: of the prompt only.
  Usage prompt_usage() const {
    Usage usage;
    usage.prompt_tokens = plan_.request->prompt_tokens;
    usage.cached_tokens = answers_.front().stream().stats().cached_tokens;
    return usage;
  }

  Usage usage() const {
    Usage usage;
    usage.prompt_tokens = plan_.request->prompt_tokens;
    std::vector<bool> counted;
    for (size_t i = 0; i < answers_.size(); ++i) {
      const auto prompt = static_cast<size_t>(plan_.prompt_of[i]);
      counted.resize(std::max(counted.size(), prompt + 1));
      usage.completion_tokens += answers_[i].tokens();
      usage.reasoning_tokens += answers_[i].end().reasoning_tokens;
      if (!counted[prompt]) {
        counted[prompt] = true;
        usage.cached_tokens += answers_[i].end().stats.cached_tokens;
      }
    }
    return usage;
  }

 private:
  GenerationPlan plan_;
  std::vector<Answer> answers_;
  size_t left_ = 0;
};

class GenerationStream : public ResponseStream {
 public:
  explicit GenerationStream(GenerationPlan plan) : running_(std::move(plan)) {}

  void start(std::function<void()> notify) override {
    running_.start(notify);
  }

  Piece pull(size_t max_bytes) override {
    Piece piece;
    if (!begun_ && !begin(piece.bytes)) {
      return piece;
    }
    try {
      for (size_t i = 0; i < running_.answers().size(); ++i) {
        take(i, max_bytes, piece.bytes);
      }
    } catch (...) {
      running_.fail();
      running_.format().error(piece.bytes, std::current_exception());
      piece.ended = true;
      return piece;
    }
    if (running_.ended()) {
      running_.format().end(piece.bytes, running_.usage());
      piece.ended = true;
    }
    return piece;
  }

  std::string keep_alive() override {
    return running_.format().keep_alive();
  }

 private:
  // False: not yet.
  bool begin(std::string& out) {
    AnswerFormat& format = running_.format();
    if (format.begins_with_prompt_usage()) {
      if (!running_.has_token()) {
        return false;
      }
      format.prompt_usage(running_.prompt_usage());
    }
    format.begin(out);
    begun_ = true;
    return true;
  }

  void take(size_t i, size_t max_bytes, std::string& out) {
    Answer& answer = running_.answers()[i];
    // Each token its own frame, so that clients see when which came.
    while (!answer.ended() && out.size() < max_bytes && answer.stream().ready()) {
      const Delta delta = running_.take(i, 1);
      if (!delta.empty()) {
        running_.format().delta(out, i, delta);
      }
      if (answer.ended()) {
        running_.format().finish(out, i, answer.end());
      }
    }
  }

  Running running_;
  bool begun_ = false;
};

class GenerationWhole : public PendingResponse {
 public:
  explicit GenerationWhole(GenerationPlan plan)
      : running_(std::move(plan)), deltas_(running_.answers().size()) {}

  void start(std::function<void()> notify) override {
    running_.start(notify);
  }

  std::optional<Response> poll() override {
    try {
      for (size_t i = 0; i < deltas_.size(); ++i) {
        Answer& answer = running_.answers()[i];
        while (!answer.ended() && answer.stream().ready()) {
          running_.format().is_list() ? add_part(i)
                                      : append(deltas_[i], running_.take(i, size_t{1} << 20));
        }
      }
    } catch (...) {
      running_.fail();
      return error_response(report(std::current_exception()), running_.format().error_style());
    }
    if (!running_.ended()) {
      return std::nullopt;
    }
    std::vector<AnswerEnd> ends;
    for (Answer& answer : running_.answers()) {
      ends.push_back(answer.end());
    }
    return running_.format().whole(std::move(deltas_), ends, running_.usage());
  }

 private:
  // As in a stream, whose events nobody reads here.
  void add_part(size_t i) {
    std::string unread;
    const Delta delta = running_.take(i, 1);
    if (!delta.empty()) {
      running_.format().delta(unread, i, delta);
    }
    if (const Answer& answer = running_.answers()[i]; answer.ended()) {
      running_.format().finish(unread, i, answer.end());
    }
  }

  static void append(Delta& to, Delta more) {
    for (ToolCallDelta& call : more.calls) {
      call.at += to.text.size();
    }
    to.text += more.text;
    to.reasoning += more.reasoning;
    for (ToolCallDelta& call : more.calls) {
      if (!call.name.empty()) {
        to.calls.push_back(std::move(call));
      } else {
        to.calls.at(static_cast<size_t>(call.index)).arguments += call.arguments;
      }
    }
    std::move(more.tokens.begin(), more.tokens.end(), std::back_inserter(to.tokens));
    to.ids.insert(to.ids.end(), more.ids.begin(), more.ids.end());
  }

  Running running_;
  std::vector<Delta> deltas_;
};

}  // namespace

std::unique_ptr<ResponseStream> stream_of(GenerationPlan plan) {
  return std::make_unique<GenerationStream>(std::move(plan));
}

std::unique_ptr<PendingResponse> whole_of(GenerationPlan plan) {
  return std::make_unique<GenerationWhole>(std::move(plan));
}

}  // namespace quince::server
