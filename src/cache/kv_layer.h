// Keys and values of one layer of one sequence, as MLX arrays [1, kv_heads, T, head_dim]. Memory is
// allocated in steps and written in place (MLX gives slice_update its input's buffer when nobody
// else holds it), so appending costs the appended rows, not the context. Engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <mlx/array.h>

namespace quince {

// What mlx::core::fast::scaled_dot_product_attention is to be told.
struct AttentionMask {
  std::string mode;                       // "", "causal"
  std::optional<mlx::core::array> array;  // bool [rows, visible rows]; true: attends
};

class KvLayer {
 public:
  virtual ~KvLayer() = default;
  // Mask for the next update() of so many rows.
  virtual AttentionMask mask(int rows) const = 0;
  // Appends rows and returns the keys and values that they attend to.
  virtual std::pair<mlx::core::array, mlx::core::array> update(
      const mlx::core::array& keys, const mlx::core::array& values) = 0;
  virtual bool can_trim(int64_t n) const = 0;
  virtual void trim(int64_t n) = 0;  // only when can_trim(n)
  virtual void clear() = 0;

  int64_t length() const {
    return length_;
  }
  size_t bytes() const;
  // The buffer behind the keys; nothing before the first update.
  const std::optional<mlx::core::array>& keys() const {
    return keys_;
  }

 protected:
  std::optional<mlx::core::array> keys_;
  std::optional<mlx::core::array> values_;
  int64_t length_ = 0;  // tokens appended so far
};

// Keeps everything (window 0) or at least the last `window` tokens. Rows lie in order of time, so
// attention always sees one slice and a single query needs no mask. With a window, old rows are
// dropped when the buffer is full; kTrimRoom more than needed stay, for trim().
class LinearKv : public KvLayer {
 public:
  static constexpr int64_t kTrimRoom = 64;
  LinearKv(int window, int expected_length);
  AttentionMask mask(int rows) const override;
  std::pair<mlx::core::array, mlx::core::array> update(
      const mlx::core::array& keys, const mlx::core::array& values) override;
  bool can_trim(int64_t n) const override;
  void trim(int64_t n) override;
  void clear() override;

 private:
  void reserve(int64_t rows, const mlx::core::array& keys, const mlx::core::array& values);
  int64_t first_visible() const;  // row of the buffer that the next token's window starts at
  int64_t stored() const {
    return length_ - base_;
  }
  int window_;  // 0: all
  int expected_length_;
  int64_t base_ = 0;  // position of the buffer's first row
};

// At most max_size tokens: the first `keep` of them for good, the others in a ring that overwrites
// the oldest. The same visible set for a token whether it comes alone or in a chunk.
class RingKv : public KvLayer {
 public:
  // 0 <= keep < max_size
  RingKv(int max_size, int keep);
  AttentionMask mask(int rows) const override;
  std::pair<mlx::core::array, mlx::core::array> update(
      const mlx::core::array& keys, const mlx::core::array& values) override;
  bool can_trim(int64_t n) const override;
  void trim(int64_t n) override;
  void clear() override;

 private:
  mlx::core::array in_order(const mlx::core::array& buffer) const;
  void append_one(const mlx::core::array& keys, const mlx::core::array& values);
  void append_many(const mlx::core::array& keys, const mlx::core::array& values);
  int64_t rows() const {
    return keys_ ? keys_->shape(2) : 0;
  }
  int64_t max_size_;
  int64_t keep_;
  int64_t next_ = 0;      // row that the next token goes to
  bool dropped_ = false;  // some token is gone
};

}  // namespace quince
