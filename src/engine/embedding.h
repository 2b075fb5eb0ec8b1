// Vectors that stand for texts, made of a decoder's last states by the engine thread, beside what
// it generates. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace quince {

// Which states of a text its vector is made of. A causal model has seen all of a text only at its
// last token.
enum class Pooling : uint8_t { last, mean };

// What the engine thread and whoever asked share.
class EmbeddingJob {
 public:
  EmbeddingJob(std::vector<std::vector<int32_t>> inputs, Pooling pooling)
      : inputs_(std::move(inputs)), pooling_(pooling) {}

  const std::vector<std::vector<int32_t>>& inputs() const {
    return inputs_;
  }
  Pooling pooling() const {
    return pooling_;
  }

  // The owner's side.
  void on_ready(
      std::function<void()> notify);  // called once, on any thread; at once if it is ready
  bool ready() const;
  // Of every input in its order, not normalized. Once ready; throws what went wrong.
  std::vector<std::vector<float>> take();
  void cancel() {
    cancelled_.store(true, std::memory_order_relaxed);
  }

  // The engine's side.
  bool cancelled() const {
    return cancelled_.load(std::memory_order_relaxed);
  }
  void finish(std::vector<std::vector<float>> vectors, std::exception_ptr error = nullptr);

 private:
  const std::vector<std::vector<int32_t>> inputs_;
  const Pooling pooling_;
  mutable std::mutex mutex_;
  std::function<void()> notify_;
  std::vector<std::vector<float>> vectors_;
  std::exception_ptr error_;
  bool ready_ = false;
  std::atomic<bool> cancelled_{false};
};

}  // namespace quince
