// Keys and values of one layer of one sequence, as planes: MLX arrays [1, kv_heads, T, width],
// first those of the keys, then those of the values (see kv_coding.h). Memory is allocated in steps
// and written in place (MLX gives slice_update its input's buffer when nobody else holds it), so
// appending costs the appended rows, not the context. Engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <mlx/array.h>

namespace quince {

// What mlx::core::fast::scaled_dot_product_attention is to be told.
struct AttentionMask {
  std::string mode;                       // "", "causal"
  std::optional<mlx::core::array> array;  // bool [rows, visible rows]; true: attends
};

// Rows [first, last) of the third axis.
mlx::core::array rows_of(const mlx::core::array& x, int64_t first, int64_t last);

using KvPlanes = std::vector<mlx::core::array>;

// Planes of positions first, first + 1, ...
struct KvRows {
  KvPlanes planes;
  int64_t first = 0;
};

class KvLayer {
 public:
  virtual ~KvLayer() = default;
  // Mask for the next update() of so many rows.
  virtual AttentionMask mask(int rows) const = 0;
  // Appends rows and returns what they attend to.
  virtual KvPlanes update(const KvPlanes& rows) = 0;
  virtual bool can_trim(int64_t n) const = 0;
  virtual void trim(int64_t n) = 0;  // only when can_trim(n)
  // Whether the next n tokens could be trimmed once they are appended.
  virtual bool can_undo(int64_t n) const = 0;
  virtual void clear() = 0;
  // What it holds, in order of position; there may be rows of room behind. Nothing when it is empty
  // or has lost that order. Until they are dropped the next update() copies.
  virtual std::optional<KvRows> rows() const = 0;
  // A cleared layer goes on from position `length`; the rows end there.
  virtual void restore(const KvRows& rows, int64_t length) = 0;

  int64_t length() const {
    return length_;
  }
  size_t bytes() const;
  // The buffers; none before the first update.
  const KvPlanes& planes() const {
    return planes_;
  }

 protected:
  KvPlanes planes_;
  int64_t length_ = 0;  // tokens appended so far
};

// Keeps everything (window 0) or at least the last `window` tokens. Rows lie in order of time, so
// attention always sees one slice and a single query needs no mask. With a window, old rows are
// dropped when the buffer is full; kTrimRoom more than needed stay, for trim().
class LinearKv : public KvLayer {
 public:
  static constexpr int64_t kTrimRoom = 64;
  LinearKv(int window, int expected_length);
  bool can_undo(int64_t n) const override {
    return window_ == 0 || n <= kTrimRoom;
  }
  AttentionMask mask(int rows) const override;
  KvPlanes update(const KvPlanes& rows) override;
  bool can_trim(int64_t n) const override;
  void trim(int64_t n) override;
  void clear() override;
  std::optional<KvRows> rows() const override;
  void restore(const KvRows& rows, int64_t length) override;

 private:
  void reserve(const KvPlanes& rows);
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
  bool can_undo(int64_t n) const override {
    return !dropped_ && length_ + n <= max_size_;
  }
  AttentionMask mask(int rows) const override;
  KvPlanes update(const KvPlanes& rows) override;
  bool can_trim(int64_t n) const override;
  void trim(int64_t n) override;
  void clear() override;
  std::optional<KvRows> rows() const override;
  void restore(const KvRows& rows, int64_t length) override;

 private:
  mlx::core::array in_order(const mlx::core::array& buffer) const;
  void append_one(const KvPlanes& rows);
  void append_many(const KvPlanes& rows);
  int64_t capacity() const {
    return planes_.empty() ? 0 : planes_.front().shape(2);
  }
  int64_t max_size_;
  int64_t keep_;
  int64_t next_ = 0;      // row that the next token goes to
  bool dropped_ = false;  // some token is gone
};

}  // namespace quince
