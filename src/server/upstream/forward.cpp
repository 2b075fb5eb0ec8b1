#include "server/upstream/forward.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>

#include "server/upstream/forward_exchange.h"

namespace quince::server {

namespace json = boost::json;
using gateway::Outcome;
using gateway::Step;

namespace {

class ForwardPending : public PendingResponse {
 public:
  explicit ForwardPending(std::shared_ptr<Forward> forward) : forward_(std::move(forward)) {}
  ~ForwardPending() override {
    if (forward_) {
      forward_->cancel();
    }
  }
  ForwardPending(const ForwardPending&) = delete;
  ForwardPending& operator=(const ForwardPending&) = delete;
  void start(std::function<void()> notify) override {
    forward_->start(std::move(notify));
  }
  std::optional<Response> poll() override {
    auto response = forward_->poll();
    if (response) {
      forward_ = nullptr;  // a stream has its own
    }
    return response;
  }

 private:
  std::shared_ptr<Forward> forward_;
};

}  // namespace

Forward::Forward(ForwardHub& hub, ForwardJob job)
    : hub_(hub),
      job_(std::move(job)),
      until_(gateway::Clock::now() + gateway::seconds(job_.config->deadline)),
      style_(server::error_style(job_.request.path)),
      timer_(hub.context()) {}

Response Forward::response(const std::shared_ptr<Forward>& forward) {
  return {.pending = std::make_unique<ForwardPending>(forward)};
}

void Forward::start(std::function<void()> notify) {
  {
    const std::scoped_lock lock(mutex_);
    notify_ = std::move(notify);
  }
  asio::post(hub_.context(), [self = shared_from_this()] {
    asio::co_spawn(self->hub_.context().get_executor(), self->run(), [self](std::exception_ptr) {});
  });
}

void Forward::follow(std::function<void()> notify) {
  const std::scoped_lock lock(mutex_);
  notify_ = std::move(notify);
}

std::optional<Response> Forward::poll() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(settled_, std::nullopt);
}

ResponseStream::Piece Forward::pull(size_t max_bytes) {
  const std::scoped_lock lock(mutex_);
  ResponseStream::Piece piece;
  if (pipe_.size() <= max_bytes) {
    piece.bytes = std::exchange(pipe_, {});
  } else {
    piece.bytes = pipe_.substr(0, max_bytes);
    pipe_.erase(0, max_bytes);
  }
  piece.ended = ended_ && pipe_.empty();
  if (full_) {
    full_ = false;
    asio::post(hub_.context(), [self = shared_from_this()] { self->wake(); });
  }
  return piece;
}

void Forward::cancel() {
  asio::post(hub_.context(), [self = shared_from_this()] {
    self->cancelled_ = true;
    if (self->link_) {
      self->link_->close();
    }
    self->wake();
  });
}

void Forward::settle(Response response) {
  std::function<void()> notify;
  {
    const std::scoped_lock lock(mutex_);
    settled_ = std::move(response);
    notify = notify_;
  }
  notify();
}

void Forward::fail(int status, std::string message, std::string code, double retry_after) {
  error_ = report(status, std::move(message));
  error_.code = std::move(code);
  error_.retry_after = std::max(1, static_cast<int>(std::ceil(retry_after)));
}

bool Forward::late() const {
  return gateway::Clock::now() >= until_;
}

Task<void> Forward::sleep(gateway::Time until) {
  if (!woken_) {
    boost::system::error_code ignored;
    timer_.expires_at(until);
    co_await timer_.async_wait(to(ignored));
  }
  woken_ = false;
}

void Forward::wake() {
  woken_ = true;
  timer_.cancel();
}

Task<void> Forward::run() {
  const auto self = shared_from_this();
  std::exception_ptr error;
  try {
    co_await answer();
  } catch (...) {
    error = std::current_exception();
  }
  if (error && streams_) {
    end_stream(stream_error("the gateway failed: " + report(error).message));
  } else if (error) {
    finish(error_response(report(error), style_));
  }
  if (!elsewhere_) {
    let_go();
  }
}

void Forward::let_go() {
  place_ = nullptr;
  if (counted_) {
    job_.use->add(*std::exchange(counted_, std::nullopt));
  }
  job_.use->done();
}

void Forward::finish(Response response) {
  let_go();
  settle(std::move(response));
}

Task<void> Forward::answer() {
  for (size_t i = 0; i < job_.models.size() && !cancelled_; ++i) {
    const std::string& name = job_.models[i];
    const bool left = i + 1 < job_.models.size();
    if (i > 0) {
      hub_.gate().fell_back(job_.models.front(), name);
    }
    const gateway::ModelConfig* model = job_.config->model(name);
    const bool here = model == nullptr || model->upstreams.empty();
    const Step step = here ? co_await ask_here(name, left) : co_await ask(*model, left);
    if (step == Step::done) {
      co_return;
    }
    if (step != Step::fall_back) {
      break;
    }
  }
  finish(refusal_ ? std::move(*refusal_) : error_response(error_, style_));
}

// A response of the model that is loaded here, before it has begun to answer.
Outcome Forward::judge_here(const Response& response) const {
  if (response.pending || response.stream || response.status < 400) {
    return Outcome::answered;
  }
  if (says_too_long(response.status, response.body)) {
    return Outcome::too_long;
  }
  if (response.status == 429 || response.status == 503) {
    return Outcome::unavailable;
  }
  return response.status >= 500 ? Outcome::failed : Outcome::client_error;
}

Task<Step> Forward::ask_here(const std::string& model, bool fallback_left) {
  HttpRequest request = job_.request;
  std::string quoted = json::serialize(json::string(model));
  const auto parts = job_.body.with_model(job_.request.body, quoted);
  request.body = std::string(parts[0]).append(parts[1]).append(parts[2]);
  request.key_use = job_.use;
  place_ = nullptr;
  const auto there = std::make_shared<std::optional<Response>>();  // this thread's
  hub_.answer_here(std::move(request), [self = shared_from_this(), there](Response response) {
    const auto given = std::make_shared<Response>(std::move(response));
    asio::post(self->hub_.context(), [self, there, given] {
      *there = std::move(*given);
      self->wake();
    });
  });
  while (!*there && !cancelled_) {
    co_await sleep(gateway::Time::max());
  }
  if (cancelled_) {
    co_return Step::done;
  }
  const Outcome outcome = judge_here(**there);
  const gateway::Situation situation{.fallback_left = fallback_left && !late()};
  if (next_step(outcome, situation, *job_.asked) == Step::fall_back) {
    refusal_ = std::move(**there);  // unless another model can
    co_return Step::fall_back;
  }
  if (outcome != Outcome::answered) {
    finish(std::move(**there));
    co_return Step::done;
  }
  elsewhere_ = true;
  settle(std::move(**there));
  co_return Step::done;
}

// A place among those that the model answers at once; false: there was none in time.
Task<bool> Forward::take_place(const gateway::ModelConfig& model) {
  const auto changed = [weak = weak_from_this(), &context = hub_.context()] {
    asio::post(context, [weak] {
      if (const auto self = weak.lock()) {
        self->wake();
      }
    });
  };
  place_ = nullptr;
  try {
    place_ = hub_.gate().enter(model, job_.use->name(), job_.use->priority(), changed);
  } catch (const gateway::Refused& refused) {
    fail(refused.status, refused.what(), refused.code, gateway::in_seconds(refused.retry_after));
    co_return false;
  }
  const auto until =
      std::min(until_, gateway::Clock::now() + gateway::seconds(model.queue_timeout));
  while (place_->state() == gateway::Place::State::waiting && !cancelled_ &&
         gateway::Clock::now() < until) {
    co_await sleep(until);
  }
  if (place_->state() == gateway::Place::State::granted) {
    co_return true;
  }
  fail(
      503,
      fmt::format("'{}' is busy: no place became free in time", model.name),
      "queue_timeout",
      1);
  co_return false;
}

Task<Step> Forward::ask(const gateway::ModelConfig& model, bool fallback_left) {
  gateway::Gate& gate = hub_.gate();
  const auto unable = [&] {
    return fallback_left && job_.asked->on_error ? Step::fall_back : Step::give_up;
  };
  const bool has_place = co_await take_place(model);
  if (cancelled_) {
    co_return Step::done;
  }
  if (!has_place) {
    co_return unable();
  }
  std::set<std::string> tried;
  for (int retries = job_.config->retries;; --retries) {
    const auto choice = gate.choose(model, tried);
    if (!choice) {
      if (tried.empty()) {
        fail(
            503,
            fmt::format(
                "no upstream of '{}' can be asked now: they fail, or do not answer", model.name),
            "upstreams_unavailable",
            gateway::in_seconds(gate.retry_after(model)));
      }
      co_return unable();
    }
    const std::string name = choice->upstream->name;
    tried.insert(name);
    Attempt attempt;
    try {
      attempt = co_await this->attempt(*choice, model);
    } catch (...) {
      gate.report(*choice, Outcome::abandoned, {});
      throw;
    }
    if (cancelled_ && attempt.outcome != Outcome::answered) {
      attempt.outcome = Outcome::abandoned;
    }
    gate.report(*choice, attempt.outcome, attempt.first_byte);
    gateway::Situation situation{
        retries, true, gate.has_choice(model, tried), fallback_left && !late()};
    Step step = next_step(attempt.outcome, situation, *job_.asked);
    if (step == Step::retry && (late() || !gate.may_retry(name))) {
      situation.within_budget = false;
      step = next_step(attempt.outcome, situation, *job_.asked);
    }
    if (step != Step::retry) {
      co_return step;
    }
  }
}

}  // namespace quince::server
