// What Forward's client is given while the upstream still answers.
#include <algorithm>

#include "base/json_text.h"
#include "server/upstream/forward_exchange.h"
#include "server/upstream/passed_headers.h"

namespace quince::server {

namespace json = boost::json;
using gateway::Outcome;

namespace {

class ForwardStream : public ResponseStream {
 public:
  explicit ForwardStream(std::shared_ptr<Forward> forward) : forward_(std::move(forward)) {}
  ~ForwardStream() override {
    forward_->cancel();
  }
  ForwardStream(const ForwardStream&) = delete;
  ForwardStream& operator=(const ForwardStream&) = delete;
  void start(std::function<void()> notify) override {
    forward_->follow(std::move(notify));
  }
  Piece pull(size_t max_bytes) override {
    return forward_->pull(max_bytes);
  }
  std::string keep_alive() override {
    return ": keep-alive\n\n";
  }

 private:
  std::shared_ptr<Forward> forward_;
};

}  // namespace

void Forward::end_stream(const std::string& last) {
  let_go();
  std::function<void()> notify;
  {
    const std::scoped_lock lock(mutex_);
    pipe_ += last;
    ended_ = true;
    notify = notify_;
  }
  notify();
}

// Whether the client has taken enough for more to be read; false: it is gone.
Task<bool> Forward::room() {
  constexpr size_t kMostHeld = size_t{64} << 10;
  while (!cancelled_) {
    {
      const std::scoped_lock lock(mutex_);
      full_ = pipe_.size() >= kMostHeld;
      if (!full_) {
        co_return true;
      }
    }
    co_await sleep(gateway::Time::max());
  }
  co_return false;
}

Task<Outcome> Forward::pass_stream(Exchange& exchange) {
  std::string bytes;
  // With a limit nothing goes out until something of the answer is there: then another may still be
  // asked. Without one the head goes out at once, for clients that wait for it.
  while (exchange.answer_until != gateway::Time::max()) {
    frames_.add(exchange.reader.take(), bytes);
    if (frames_.events() > 0 || exchange.reader.done()) {
      break;
    }
    const std::string wrong =
        co_await exchange.read(gateway::in_seconds(exchange.answer_until - gateway::Clock::now()));
    if (!wrong.empty()) {
      frames_ = {};
      co_return broken(exchange, wrong);
    }
  }
  Response head;
  head.status = exchange.reader.status();
  head.content_type = std::string(exchange.reader.header("Content-Type"));
  head.headers = response_headers(exchange.reader);
  head.stream = std::make_unique<ForwardStream>(shared_from_this());
  streams_ = true;
  settle(std::move(head));
  while (true) {
    frames_.add(exchange.reader.take(), bytes);
    if (exchange.reader.done()) {
      frames_.finish(bytes);
      count_stream();
      end_stream(bytes);
      co_return Outcome::answered;
    }
    if (!bytes.empty()) {
      std::function<void()> notify;
      {
        const std::scoped_lock lock(mutex_);
        pipe_ += bytes;
        notify = notify_;
      }
      bytes.clear();
      notify();
    }
    if (!co_await room()) {
      count_stream();
      co_return Outcome::abandoned;
    }
    const std::string wrong = co_await exchange.read(exchange.upstream().idle_timeout);
    if (!wrong.empty() && !cancelled_) {
      frames_.add(exchange.reader.take(), bytes);  // what came before it
      co_return break_off(bytes, wrong);
    }
  }
}

// The end of a stream that has none: what came of it, then what is wrong.
Outcome Forward::break_off(const std::string& last, const std::string& wrong) {
  count_stream();
  if (frames_.done()) {
    end_stream(last);
    return Outcome::answered;
  }
  const bool over = late();
  end_stream(
      last + stream_error(
                 over ? "the request's time is over"
                      : "the upstream broke off in the middle of its answer: " + wrong));
  return over ? Outcome::abandoned : Outcome::died;
}

// In the shape that the API has for it.
std::string Forward::stream_error(const std::string& message) const {
  ErrorReport what = report(502, message);
  what.code = "upstream_error";
  if (job_.request.path.starts_with("/v1/responses")) {
    return "event: error\ndata: " +
           compact_json(json::object{
               {"type", "error"},
               {"code", what.code},
               {"message", message},
               {"param", nullptr},
               {"sequence_number", frames_.sequence_number() + 1}}) +
           "\n\n";
  }
  return (style_ == ErrorStyle::anthropic ? "event: error\n" : "") + std::string("data: ") +
         json::serialize(error_json(what, style_)) + "\n\n";
}

// A rough count where the upstream tells none: four bytes a token, one token an event.
void Forward::count_stream() {
  counted_ = frames_.usage();
  if (!frames_.has_usage()) {
    counted_ = {static_cast<int64_t>(job_.request.body.size() / 4), frames_.events()};
  }
}

void Forward::count_whole(const std::string& body) {
  gateway::TokenCount count;
  if (!read_usage(body, count)) {
    count.prompt = static_cast<int64_t>(job_.request.body.size() / 4);
  }
  counted_ = count;
}

}  // namespace quince::server
