// What the engine thread and the owner of a TokenStream share. All members are thread-safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>

#include "engine/token_stream.h"

namespace quince {

class StreamState {
 public:
  // wake: called when the owner cancels, or has read enough that the engine may go on. From any
  // thread, with no lock held.
  explicit StreamState(std::function<void()> wake = nullptr) : wake_(std::move(wake)) {}

  // The engine's side. push never waits: false means that the owner is behind and the sequence
  // should pause until has_room(). A step that is under way may still push.
  bool push(GeneratedToken token);
  bool has_room() const;
  void finish(FinishReason reason, std::exception_ptr error = nullptr);
  void set_stats(const GenerationStats& stats);
  void set_prompt_logprob(size_t n, GeneratedToken token);  // of the prompt's token n + 1

  // The owner's side.
  std::optional<GeneratedToken> pop();
  bool ready() const;
  void on_ready(std::function<void()> notify);
  void cancel();
  FinishReason finish_reason() const;
  GenerationStats stats() const;
  std::vector<GeneratedToken> prompt_logprobs() const;

  bool cancelled() const {
    return cancelled_.load(std::memory_order_relaxed);
  }

 private:
  static constexpr size_t kCapacity = 256;

  using Notify = std::shared_ptr<const std::function<void()>>;

  std::function<void()> wake_;
  Notify notify_;  // of the owner; null: it waits in pop()
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<GeneratedToken> tokens_;
  std::vector<GeneratedToken> prompt_logprobs_;
  bool behind_ = false;  // push has said false and has_room not yet true
  std::exception_ptr error_;
  FinishReason reason_ = FinishReason::none;
  GenerationStats stats_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace quince
