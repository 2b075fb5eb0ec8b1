#include "cache/kv_layer.h"

#include <algorithm>

#include <mlx/mlx.h>

namespace quince {
namespace {

namespace mx = mlx::core;

constexpr int64_t kStep = 256;  // rows; allocations are multiples of it

int64_t round_up(int64_t rows) {
  return (rows + kStep - 1) / kStep * kStep;
}

mx::array rows_of(const mx::array& x, int64_t first, int64_t last) {
  if (first == 0 && last == x.shape(2)) {
    return x;
  }
  return mx::slice(
      x,
      {0, 0, static_cast<int>(first), 0},
      {x.shape(0), x.shape(1), static_cast<int>(last), x.shape(3)});
}

// x's buffer is written in place: the caller's handle is the only one left when MLX evaluates.
void write_rows(std::optional<mx::array>& x, const mx::array& rows, int64_t first) {
  const int last = static_cast<int>(first) + rows.shape(2);
  x = mx::slice_update(
      *x, rows, {0, 0, static_cast<int>(first), 0}, {x->shape(0), x->shape(1), last, x->shape(3)});
}

mx::array zeros_like_rows(const mx::array& rows, int64_t n) {
  return mx::zeros(
      {rows.shape(0), rows.shape(1), static_cast<int>(n), rows.shape(3)}, rows.dtype());
}

// Rows [first, last) of the old buffer, followed by room up to `capacity`.
void reallocate(
    std::optional<mx::array>& x,
    const mx::array& like,
    int64_t first,
    int64_t last,
    int64_t capacity) {
  if (!x || first == last) {
    x = zeros_like_rows(like, capacity);
    return;
  }
  x = mx::concatenate(
      {rows_of(*x, first, last), zeros_like_rows(like, capacity - (last - first))}, 2);
}

}  // namespace

size_t KvLayer::bytes() const {
  return (keys_ ? keys_->nbytes() : 0) + (values_ ? values_->nbytes() : 0);
}

LinearKv::LinearKv(int window, int expected_length)
    : window_(window), expected_length_(expected_length) {}

int64_t LinearKv::first_visible() const {
  return window_ == 0 ? 0 : std::max<int64_t>(0, stored() - (window_ - 1));
}

AttentionMask LinearKv::mask(int rows) const {
  if (rows == 1) {
    return {};
  }
  const int64_t before = stored() - first_visible();
  const int64_t visible = before + rows;
  if (window_ == 0 || visible <= window_) {
    return {"causal", std::nullopt};
  }
  auto bits = std::make_unique<bool[]>(static_cast<size_t>(rows * visible));
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t at = before + i;
    const int64_t first = std::max<int64_t>(0, at - window_ + 1);
    std::fill(&bits[i * visible + first], &bits[i * visible + at + 1], true);
  }
  return {"array", mx::array(bits.get(), {rows, static_cast<int>(visible)}, mx::bool_)};
}

void LinearKv::reserve(int64_t rows, const mx::array& keys, const mx::array& values) {
  const int64_t capacity = keys_ ? keys_->shape(2) : 0;
  if (stored() + rows <= capacity) {
    return;
  }
  const int64_t keep = window_ == 0 ? stored() : std::min(stored(), window_ - 1 + kTrimRoom);
  const int64_t drop = stored() - keep;
  int64_t wanted = keep + rows;
  if (drop > 0) {
    wanted += kStep - 1;  // the next compaction is at least that far away
  } else {
    // Growing by a share keeps the cost of an append constant, however long the context.
    wanted = std::max(wanted, stored() + stored() / 4);
    if (window_ == 0) {
      wanted = std::max<int64_t>(wanted, expected_length_);
    }
  }
  const int64_t last = stored();
  reallocate(keys_, keys, drop, last, round_up(wanted));
  reallocate(values_, values, drop, last, round_up(wanted));
  base_ += drop;
}

std::pair<mx::array, mx::array> LinearKv::update(const mx::array& keys, const mx::array& values) {
  const int64_t rows = keys.shape(2);
  reserve(rows, keys, values);
  const int64_t first = first_visible();
  write_rows(keys_, keys, stored());
  write_rows(values_, values, stored());
  length_ += rows;
  return {rows_of(*keys_, first, stored()), rows_of(*values_, first, stored())};
}

bool LinearKv::can_trim(int64_t n) const {
  if (n < 0 || n > length_) {
    return false;
  }
  return window_ == 0 || base_ == 0 || length_ - n - (window_ - 1) >= base_;
}

void LinearKv::trim(int64_t n) {
  length_ -= n;
}

void LinearKv::clear() {
  keys_.reset();
  values_.reset();
  length_ = 0;
  base_ = 0;
}

RingKv::RingKv(int max_size, int keep) : max_size_(max_size), keep_(keep) {}

// The visible rows of a chunk: what is kept, what came before, the chunk itself; each query sees
// the kept rows and the last max_size - keep tokens up to itself, as if it had come alone.
AttentionMask RingKv::mask(int rows) const {
  if (rows == 1) {
    return {};
  }
  const int64_t before = std::min(length_, max_size_ - 1);
  const int64_t visible = before + rows;
  if (length_ + rows <= max_size_) {
    return {"causal", std::nullopt};
  }
  const int64_t recent = max_size_ - keep_;
  auto bits = std::make_unique<bool[]>(static_cast<size_t>(rows * visible));
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t at = before + i;  // this query's row
    bool* row = &bits[i * visible];
    std::fill(row, row + std::min(keep_, at + 1), true);
    std::fill(row + std::max<int64_t>(0, at - recent + 1), row + at + 1, true);
  }
  return {"array", mx::array(bits.get(), {rows, static_cast<int>(visible)}, mx::bool_)};
}

mx::array RingKv::in_order(const mx::array& buffer) const {
  if (!dropped_) {
    return rows_of(buffer, 0, length_);
  }
  if (next_ == buffer.shape(2)) {
    return buffer;
  }
  return mx::concatenate(
      {rows_of(buffer, 0, keep_),
       rows_of(buffer, next_, buffer.shape(2)),
       rows_of(buffer, keep_, next_)},
      2);
}

void RingKv::append_many(const mx::array& keys, const mx::array& values) {
  const auto join = [&](std::optional<mx::array>& held, const mx::array& more) {
    if (length_ == 0) {
      held = more;
      return;
    }
    const mx::array old = in_order(*held);
    const int64_t surplus = old.shape(2) - (max_size_ - 1);
    if (surplus <= 0) {
      held = mx::concatenate({old, more}, 2);
    } else {
      held = mx::concatenate(
          {rows_of(old, 0, keep_), rows_of(old, keep_ + surplus, old.shape(2)), more}, 2);
    }
  };
  join(keys_, keys);
  join(values_, values);
  length_ += keys.shape(2);
  next_ = rows();
  dropped_ = length_ > next_;
}

void RingKv::append_one(const mx::array& keys, const mx::array& values) {
  if (rows() > max_size_) {  // after a chunk: in order, and longer than the ring
    const int64_t size = dropped_ ? rows() : length_;
    const int64_t recent = max_size_ - keep_;
    for (auto* held : {&keys_, &values_}) {
      *held = size <= max_size_
                  ? rows_of(**held, 0, size)
                  : mx::concatenate(
                        {rows_of(**held, 0, keep_), rows_of(**held, size - recent, size)}, 2);
    }
    next_ = rows();
  }
  if (length_ >= rows() && rows() < max_size_) {
    const int64_t size = rows();
    const int64_t capacity = std::min(max_size_, round_up(std::max(size + 1, size + size / 4)));
    reallocate(keys_, keys, 0, size, capacity);
    reallocate(values_, values, 0, size, capacity);
    next_ = length_;
  }
  if (next_ == max_size_) {
    next_ = keep_;
  }
  write_rows(keys_, keys, next_);
  write_rows(values_, values, next_);
  ++length_;
  ++next_;
  dropped_ = length_ > max_size_;
}

std::pair<mx::array, mx::array> RingKv::update(const mx::array& keys, const mx::array& values) {
  if (keys.shape(2) > 1) {
    append_many(keys, values);
  } else {
    append_one(keys, values);
  }
  const int64_t visible = std::min(length_, rows());
  return {rows_of(*keys_, 0, visible), rows_of(*values_, 0, visible)};
}

bool RingKv::can_trim(int64_t n) const {
  return n >= 0 && n <= length_ && (!dropped_ || n == 0);
}

void RingKv::trim(int64_t n) {
  length_ -= n;
  next_ -= n;
}

void RingKv::clear() {
  keys_.reset();
  values_.reset();
  length_ = 0;
  next_ = 0;
  dropped_ = false;
}

}  // namespace quince
