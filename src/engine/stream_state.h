// What the engine thread and the owner of a TokenStream share. All members are thread-safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>

#include "engine/token_stream.h"

namespace quince {

class StreamState {
 public:
  // The engine's side. push waits while the owner is behind by kCapacity tokens.
  void push(GeneratedToken token);
  void finish(FinishReason reason, std::exception_ptr error = nullptr);
  void set_stats(const GenerationStats& stats);

  // The owner's side.
  std::optional<GeneratedToken> pop();
  void cancel();
  FinishReason finish_reason() const;
  GenerationStats stats() const;

  bool cancelled() const {
    return cancelled_.load(std::memory_order_relaxed);
  }

 private:
  static constexpr size_t kCapacity = 256;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<GeneratedToken> tokens_;
  std::exception_ptr error_;
  FinishReason reason_ = FinishReason::none;
  GenerationStats stats_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace quince
