// What a constraint allows as lazy arrays, for samplers made of MLX operations. Engine thread.
#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <mlx/array.h>

#include "engine/sampling/sampler.h"

namespace quince {

// Of one request; MLX's CPU thread writes, the engine's asks.
class ConstraintFailures {
 public:
  void set(int call) {
    const std::scoped_lock lock(mutex_);
    if (!failure_) {
      failure_ = std::current_exception();
      call_ = call;
    }
  }
  void check(int n) const {
    const std::scoped_lock lock(mutex_);
    if (failure_ && call_ <= n) {
      std::rethrow_exception(failure_);
    }
  }

 private:
  mutable std::mutex mutex_;
  std::exception_ptr failure_;
  int call_ = 0;
};

// Of one request: its rows in their order.
class ConstraintGraph {
 public:
  // Tokens decided since the last row without being sampled.
  std::vector<int32_t> skipped(const SampleRow& row);
  // [words] uint32, the row's mask (see TokenMask), made on the CPU when the token before is known.
  // Tells the constraint that token.
  mlx::core::array words(const SampleRow& row, int vocabulary);
  void chosen(const mlx::core::array& token) {
    before_ = token;
  }
  // See Sampler::check().
  void check(int n) const {
    failures_->check(n);
  }

 private:
  int calls_ = 0;
  int64_t position_ = 0;                    // of the next token
  std::optional<mlx::core::array> before_;  // the last token, when it was sampled
  std::shared_ptr<ConstraintFailures> failures_ = std::make_shared<ConstraintFailures>();
};

}  // namespace quince
