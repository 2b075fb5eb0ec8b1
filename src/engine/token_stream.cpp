#include "engine/token_stream.h"

#include <algorithm>
#include <utility>

#include "engine/stream_state.h"

namespace quince {

const char* name(FinishReason reason) {
  switch (reason) {
    case FinishReason::none:
      return "none";
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::cancelled:
      return "cancelled";
    case FinishReason::deadline:
      return "deadline";
    case FinishReason::error:
      return "error";
  }
  return "none";
}

bool StreamState::push(GeneratedToken token) {
  std::unique_lock lock(mutex_);
  tokens_.push_back(std::move(token));
  changed_.notify_all();
  behind_ = tokens_.size() >= kCapacity;
  const bool room = !behind_;
  const Notify notify = tokens_.size() == 1 ? notify_ : nullptr;
  lock.unlock();
  if (notify) {
    (*notify)();
  }
  return room;
}

bool StreamState::has_room() const {
  std::lock_guard lock(mutex_);
  return !behind_;
}

void StreamState::finish(FinishReason reason, std::exception_ptr error) {
  std::unique_lock lock(mutex_);
  reason_ = reason;
  error_ = std::move(error);
  changed_.notify_all();
  const Notify notify = notify_;
  lock.unlock();
  if (notify) {
    (*notify)();
  }
}

void StreamState::set_stats(const GenerationStats& stats) {
  std::lock_guard lock(mutex_);
  stats_ = stats;
}

void StreamState::set_prompt_logprob(size_t n, GeneratedToken token) {
  std::lock_guard lock(mutex_);
  prompt_logprobs_.resize(std::max(prompt_logprobs_.size(), n + 1));
  prompt_logprobs_[n] = std::move(token);
}

std::vector<GeneratedToken> StreamState::prompt_logprobs() const {
  std::lock_guard lock(mutex_);
  return prompt_logprobs_;
}

std::optional<GeneratedToken> StreamState::pop() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !tokens_.empty() || reason_ != FinishReason::none; });
  if (tokens_.empty()) {
    if (error_) {
      std::rethrow_exception(std::exchange(error_, nullptr));
    }
    return std::nullopt;
  }
  GeneratedToken token = std::move(tokens_.front());
  tokens_.pop_front();
  const bool caught_up = behind_ && tokens_.size() <= kCapacity / 2;
  behind_ = behind_ && !caught_up;
  lock.unlock();
  if (caught_up && wake_) {
    wake_();
  }
  return token;
}

bool StreamState::ready() const {
  std::lock_guard lock(mutex_);
  return !tokens_.empty() || reason_ != FinishReason::none;
}

void StreamState::on_ready(std::function<void()> notify) {
  Notify now;
  {
    std::lock_guard lock(mutex_);
    notify_ = notify ? std::make_shared<const std::function<void()>>(std::move(notify)) : nullptr;
    if (!tokens_.empty() || reason_ != FinishReason::none) {
      now = notify_;
    }
  }
  if (now) {
    (*now)();
  }
}

void StreamState::cancel() {
  {
    std::lock_guard lock(mutex_);
    cancelled_.store(true, std::memory_order_relaxed);
    if (reason_ != FinishReason::none) {
      return;
    }
  }
  if (wake_) {
    wake_();
  }
}

FinishReason StreamState::finish_reason() const {
  std::lock_guard lock(mutex_);
  return reason_;
}

GenerationStats StreamState::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

TokenStream::TokenStream(std::shared_ptr<StreamState> state) : state_(std::move(state)) {}

TokenStream& TokenStream::operator=(TokenStream&& other) noexcept {
  if (this != &other) {
    if (state_) {
      state_->cancel();
    }
    state_ = std::move(other.state_);
  }
  return *this;
}

TokenStream::~TokenStream() {
  if (state_) {
    state_->cancel();
  }
}

std::optional<GeneratedToken> TokenStream::next() {
  return state_->pop();
}

bool TokenStream::ready() const {
  return state_->ready();
}

void TokenStream::on_ready(std::function<void()> notify) {
  state_->on_ready(std::move(notify));
}

void TokenStream::cancel() {
  state_->cancel();
}

FinishReason TokenStream::finish_reason() const {
  return state_->finish_reason();
}

GenerationStats TokenStream::stats() const {
  return state_->stats();
}

std::vector<GeneratedToken> TokenStream::prompt_logprobs() const {
  return state_->prompt_logprobs();
}

}  // namespace quince
