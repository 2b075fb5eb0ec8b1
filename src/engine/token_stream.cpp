#include "engine/token_stream.h"

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
    case FinishReason::error:
      return "error";
  }
  return "none";
}

void StreamState::push(GeneratedToken token) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return tokens_.size() < kCapacity || cancelled(); });
  tokens_.push_back(token);
  changed_.notify_all();
}

void StreamState::finish(FinishReason reason, std::exception_ptr error) {
  std::lock_guard lock(mutex_);
  reason_ = reason;
  error_ = std::move(error);
  changed_.notify_all();
}

void StreamState::set_stats(const GenerationStats& stats) {
  std::lock_guard lock(mutex_);
  stats_ = stats;
}

std::optional<GeneratedToken> StreamState::pop() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !tokens_.empty() || reason_ != FinishReason::none; });
  if (!tokens_.empty()) {
    const GeneratedToken token = tokens_.front();
    tokens_.pop_front();
    changed_.notify_all();
    return token;
  }
  if (error_) {
    std::rethrow_exception(std::exchange(error_, nullptr));
  }
  return std::nullopt;
}

void StreamState::cancel() {
  std::lock_guard lock(mutex_);
  cancelled_.store(true, std::memory_order_relaxed);
  changed_.notify_all();
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

void TokenStream::cancel() {
  state_->cancel();
}

FinishReason TokenStream::finish_reason() const {
  return state_->finish_reason();
}

GenerationStats TokenStream::stats() const {
  return state_->stats();
}

}  // namespace quince
