// A model that counts: after token t comes t + 1 (modulo the vocabulary), and a cache that only
// remembers how long it is. Enough to test everything above the waist without weights.
#pragma once

#include <atomic>
#include <limits>
#include <stdexcept>
#include <vector>

#include <mlx/ops.h>
#include <mlx/transforms.h>

#include "models/model.h"

namespace quince {

class FakePart : public CachePart {
 public:
  bool is_whole() const override {
    return true;
  }
  void thin() override {}
};

class FakeCache : public Cache {
 public:
  int64_t length() const override {
    return length_;
  }
  size_t bytes() const override {
    return 0;
  }
  bool trim(int64_t n) override {
    if (!can_trim) {
      return false;
    }
    length_ -= n;
    return true;
  }
  bool can_undo(int64_t) const override {
    return can_trim;
  }
  void clear() override {
    length_ = 0;
  }

  CacheReach reach() const override {
    return {};
  }
  size_t page_bytes() const override {
    return 1;
  }
  bool shares_at_once() const override {
    return true;
  }
  std::shared_ptr<CachePart> share(int64_t) override {
    if (broken && *broken) {
      throw std::runtime_error("the fake cache is broken");
    }
    return std::make_shared<FakePart>();
  }
  void adopt(std::span<const std::shared_ptr<CachePart>>, int64_t length) override {
    length_ = length;
  }

  bool can_trim = true;
  const std::atomic<bool>* broken = nullptr;  // share() throws when it is set

 private:
  friend class FakeModel;
  int64_t length_ = 0;
};

struct FakeModelLog {
  std::atomic<int> rows_run = 0;
  std::atomic<int> largest_batch = 0;
  std::atomic<int> most_sequences = 0;  // in one step
  std::atomic<int> steps = 0;
  std::atomic<int> fail_at_row = -1;  // throws when this row is reached
  std::atomic<int> nan_at_row = -1;   // logits are NaN from this row on
  std::atomic<bool> broken_caches = false;
};

class FakeModel : public Model {
 public:
  explicit FakeModel(
      int vocab = 32, std::shared_ptr<FakeModelLog> log = nullptr, bool can_trim = true)
      : log_(log ? std::move(log) : std::make_shared<FakeModelLog>()), can_trim_(can_trim) {
    info_.model_type = "fake";
    info_.vocab_size = vocab;
    info_.context_length = 1000;
  }

  const ModelInfo& info() const override {
    return info_;
  }

  std::unique_ptr<Cache> make_cache(const CacheOptions&) const override {
    auto cache = std::make_unique<FakeCache>();
    cache->can_trim = can_trim_;
    cache->broken = &log_->broken_caches;
    return cache;
  }

  mlx::core::array forward(const Batch& batch) override {
    namespace mx = mlx::core;
    int rows = 0;
    for (const Segment& segment : batch.segments) {
      static_cast<FakeCache*>(segment.cache)->length_ += segment.rows;
      rows += segment.rows;
    }
    log_->rows_run += rows;
    ++log_->steps;
    log_->most_sequences =
        std::max(log_->most_sequences.load(), static_cast<int>(batch.segments.size()));
    log_->largest_batch = std::max(log_->largest_batch.load(), rows);
    if (log_->fail_at_row >= 0 && log_->rows_run > log_->fail_at_row) {
      throw std::runtime_error("the fake model was told to fail");
    }
    const mx::array wanted =
        mx::array(batch.logit_rows.begin(), {static_cast<int>(batch.logit_rows.size())}, mx::int32);
    const mx::array last = mx::take(batch.tokens, wanted, 0);
    const mx::array next = mx::remainder(mx::add(last, mx::array(1)), mx::array(info_.vocab_size));
    const mx::array ids = mx::arange(0, info_.vocab_size, mx::int32);
    // 10 on the next id, 0 elsewhere.
    const bool broken = log_->nan_at_row >= 0 && log_->rows_run > log_->nan_at_row;
    return mx::multiply(
        mx::astype(mx::equal(mx::expand_dims(next, 1), mx::expand_dims(ids, 0)), mx::float32),
        mx::array(broken ? std::numeric_limits<float>::quiet_NaN() : 10.0f));
  }

 private:
  ModelInfo info_;
  std::shared_ptr<FakeModelLog> log_;
  bool can_trim_;
};

}  // namespace quince
