#include "nn/composed_attention.h"

#include <limits>
#include <span>

#include <mlx/fast.h>
#include <mlx/ops.h>

namespace quince {

namespace mx = mlx::core;

namespace {

// x [1, kv_heads, n, K] times one side's numbers, [1, kv_heads, T, head_dim]: transposed for keys.
mx::array product(
    const mx::array& x,
    std::span<const mx::array> planes,
    const KvCoding& coding,
    bool transposed) {
  const mx::array own = mx::astype(x, coding.type());
  if (coding.coded()) {
    return mx::quantized_matmul(
        own, planes[0], planes[1], planes[2], transposed, coding.group(), coding.bits());
  }
  return mx::matmul(own, transposed ? mx::swapaxes(planes[0], 2, 3) : planes[0]);
}

// bool [rows, visible]: the last of `visible` is the last row's own position.
mx::array causal(int rows, int visible) {
  const mx::array at = mx::arange(visible - rows, visible, mx::int32);
  return mx::greater_equal(mx::expand_dims(at, 1), mx::arange(visible, mx::int32));
}

}  // namespace

mx::array attend(
    const mx::array& q,
    const KvPlanes& planes,
    const KvCoding& keys,
    const KvCoding& values,
    float scale,
    const AttentionMask& mask) {
  if (!keys.coded() && !values.coded() && keys.type() == values.type()) {
    // The queries take the cache's type, never the other way round: it is as long as the text.
    return mx::fast::scaled_dot_product_attention(
        mx::astype(q, keys.type()),
        planes[0],
        planes[1],
        scale,
        mask.mode == "array" ? "" : mask.mode,
        mask.array);
  }
  const auto behind_keys = static_cast<std::ptrdiff_t>(keys.planes().size());
  const std::span<const mx::array> of_keys(planes.begin(), planes.begin() + behind_keys);
  const std::span<const mx::array> of_values(planes.begin() + behind_keys, planes.end());
  const int kv_heads = planes.front().shape(1);
  const int visible = planes.front().shape(2);
  const int group = q.shape(1) / kv_heads;
  const int rows = q.shape(2);
  const int dim = q.shape(3);
  // The query heads of one key head lie behind each other: they are rows of one product.
  const mx::array x =
      mx::reshape(q * mx::array(scale, q.dtype()), {1, kv_heads, group * rows, dim});
  mx::array scores = mx::astype(product(x, of_keys, keys, true), mx::float32);
  if (mask.array || mask.mode == "causal") {
    const mx::array seen = mask.array ? *mask.array : causal(rows, visible);
    const mx::array nothing(-std::numeric_limits<float>::infinity());
    scores = mx::reshape(scores, {1, kv_heads, group, rows, visible});
    scores = mx::where(seen, scores, nothing);
    scores = mx::reshape(scores, {1, kv_heads, group * rows, visible});
  }
  const mx::array weights = mx::softmax(scores, -1);
  return mx::reshape(product(weights, of_values, values, false), q.shape());
}

}  // namespace quince
