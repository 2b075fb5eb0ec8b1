#include "cache/kv_layer.h"

#include <algorithm>
#include <utility>

#include <mlx/mlx.h>

namespace quince {
namespace {

namespace mx = mlx::core;

constexpr int64_t kStep = 256;  // rows; allocations are multiples of it

int64_t round_up(int64_t rows) {
  return (rows + kStep - 1) / kStep * kStep;
}

// x's buffer is written in place: the caller's handle is the only one left when MLX evaluates.
void write_rows(KvPlanes& planes, const KvPlanes& rows, int64_t first) {
  const int last = static_cast<int>(first) + rows.front().shape(2);
  for (size_t i = 0; i < planes.size(); ++i) {
    mx::array& x = planes[i];
    x = mx::slice_update(
        x, rows[i], {0, 0, static_cast<int>(first), 0}, {x.shape(0), x.shape(1), last, x.shape(3)});
  }
}

KvPlanes cut(const KvPlanes& planes, int64_t first, int64_t last) {
  KvPlanes out;
  for (const mx::array& x : planes) {
    out.push_back(rows_of(x, first, last));
  }
  return out;
}

mx::array zeros_like_rows(const mx::array& rows, int64_t n) {
  return mx::zeros(
      {rows.shape(0), rows.shape(1), static_cast<int>(n), rows.shape(3)}, rows.dtype());
}

// Rows [first, last) of the old buffers, followed by room up to `capacity`.
void reallocate(
    KvPlanes& planes, const KvPlanes& like, int64_t first, int64_t last, int64_t capacity) {
  const KvPlanes old = std::exchange(planes, {});
  for (size_t i = 0; i < like.size(); ++i) {
    if (first == last) {
      planes.push_back(zeros_like_rows(like[i], capacity));
    } else {
      planes.push_back(mx::concatenate(
          {rows_of(old[i], first, last), zeros_like_rows(like[i], capacity - (last - first))}, 2));
    }
  }
}

}  // namespace

mx::array rows_of(const mx::array& x, int64_t first, int64_t last) {
  if (first == 0 && last == x.shape(2)) {
    return x;
  }
  return mx::slice(
      x,
      {0, 0, static_cast<int>(first), 0},
      {x.shape(0), x.shape(1), static_cast<int>(last), x.shape(3)});
}

size_t KvLayer::bytes() const {
  size_t sum = 0;
  for (const mx::array& plane : planes_) {
    sum += plane.nbytes();
  }
  return sum;
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

void LinearKv::reserve(const KvPlanes& more) {
  const int64_t rows = more.front().shape(2);
  const int64_t capacity = planes_.empty() ? 0 : planes_.front().shape(2);
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
  reallocate(planes_, more, drop, stored(), round_up(wanted));
  base_ += drop;
}

KvPlanes LinearKv::update(const KvPlanes& rows) {
  reserve(rows);
  const int64_t first = first_visible();
  write_rows(planes_, rows, stored());
  length_ += rows.front().shape(2);
  return cut(planes_, first, stored());
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
  planes_.clear();
  length_ = 0;
  base_ = 0;
}

std::optional<KvRows> LinearKv::rows() const {
  if (planes_.empty()) {
    return std::nullopt;
  }
  return KvRows{planes_, base_};
}

void LinearKv::restore(const KvRows& rows, int64_t length) {
  planes_ = rows.planes;
  base_ = rows.first;
  length_ = length;
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

void RingKv::append_many(const KvPlanes& rows) {
  if (length_ == 0) {
    planes_ = rows;
  }
  for (size_t i = 0; length_ > 0 && i < rows.size(); ++i) {
    mx::array& held = planes_[i];
    const mx::array& more = rows[i];
    const mx::array old = in_order(held);
    const int64_t surplus = old.shape(2) - (max_size_ - 1);
    if (surplus <= 0) {
      held = mx::concatenate({old, more}, 2);
    } else {
      held = mx::concatenate(
          {rows_of(old, 0, keep_), rows_of(old, keep_ + surplus, old.shape(2)), more}, 2);
    }
  }
  length_ += rows.front().shape(2);
  next_ = capacity();
  dropped_ = length_ > next_;
}

void RingKv::append_one(const KvPlanes& rows) {
  if (capacity() > max_size_) {  // after a chunk: in order, and longer than the ring
    const int64_t size = dropped_ ? capacity() : length_;
    const int64_t recent = max_size_ - keep_;
    for (mx::array& held : planes_) {
      held =
          size <= max_size_
              ? rows_of(held, 0, size)
              : mx::concatenate({rows_of(held, 0, keep_), rows_of(held, size - recent, size)}, 2);
    }
    next_ = capacity();
  }
  if (length_ >= capacity() && capacity() < max_size_) {
    const int64_t size = capacity();
    const int64_t wanted = std::min(max_size_, round_up(std::max(size + 1, size + size / 4)));
    reallocate(planes_, rows, 0, size, wanted);
    next_ = length_;
  }
  if (next_ == max_size_) {
    next_ = keep_;
  }
  write_rows(planes_, rows, next_);
  ++length_;
  ++next_;
  dropped_ = length_ > max_size_;
}

KvPlanes RingKv::update(const KvPlanes& rows) {
  if (rows.front().shape(2) > 1) {
    append_many(rows);
  } else {
    append_one(rows);
  }
  return cut(planes_, 0, std::min(length_, capacity()));
}

bool RingKv::can_trim(int64_t n) const {
  return n >= 0 && n <= length_ && (!dropped_ || n == 0);
}

void RingKv::trim(int64_t n) {
  length_ -= n;
  next_ -= n;
}

void RingKv::clear() {
  planes_.clear();
  length_ = 0;
  next_ = 0;
  dropped_ = false;
}

std::optional<KvRows> RingKv::rows() const {
  if (planes_.empty() || dropped_) {
    return std::nullopt;
  }
  return KvRows{planes_, 0};
}

// As after a chunk.
void RingKv::restore(const KvRows& rows, int64_t length) {
  planes_ = rows.planes;
  length_ = length;
  next_ = length;
}

}  // namespace quince
