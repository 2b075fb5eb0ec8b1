#include "engine/sampling/composed_filters.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <mlx/ops.h>

namespace quince::composed {

namespace mx = mlx::core;

namespace {

constexpr float kLowestTemperature = 1e-9f;

array scalar(double x) {
  return array(static_cast<float>(x));
}

array keep(const array& which, const array& row) {
  return mx::where(which, row, never());
}

array alive(const array& row) {
  return mx::greater(row, never());
}

array count(const array& which) {
  return mx::sum(mx::astype(which, mx::float32));
}

// log(p), -infinity for those that are out.
array log_softmax(const array& row) {
  return mx::subtract(row, mx::logsumexp(row));
}

// In nats; those that are out count nothing.
array entropy(const array& log_p) {
  return mx::negative(
      mx::sum(mx::where(alive(log_p), mx::multiply(mx::exp(log_p), log_p), scalar(0))));
}

// The k-th highest logit, [1].
array kth(const array& row, int k) {
  const int size = row.shape(0);
  return mx::slice(mx::partition(row, size - k, 0), {size - k}, {size - k + 1});
}

array at_least(const array& which, const array& row, int min_keep) {
  if (min_keep <= 0) {
    return which;
  }
  return mx::logical_or(which, mx::greater_equal(row, kth(row, std::min(min_keep, row.shape(0)))));
}

// [V] bool out of one that follows order.
array in_place(const array& which, const array& order) {
  return mx::put_along_axis(mx::zeros(which.shape(), mx::bool_), order, which, 0);
}

array ranks(int size) {
  return mx::arange(0, size, mx::int32);
}

}  // namespace

array never() {
  return array(-std::numeric_limits<float>::infinity());
}

array top_k(const array& row, int k) {
  return k >= row.shape(0) ? row : keep(mx::greater_equal(row, kth(row, k)), row);
}

array top_p(const array& row, float p, int min_keep) {
  const array order = mx::argsort(mx::negative(row), 0);
  const array probability = mx::softmax(mx::take(row, order, 0), 0, true);
  const array before = mx::subtract(mx::cumsum(probability, 0), probability);
  const array wanted = mx::logical_or(
      mx::less(before, scalar(p)), mx::less(ranks(row.shape(0)), array(std::max(min_keep, 1))));
  return keep(in_place(wanted, order), row);
}

array min_p(const array& row, float p, int min_keep) {
  const array lowest = mx::add(mx::max(row), scalar(std::log(p)));
  return keep(at_least(mx::greater_equal(row, lowest), row, min_keep), row);
}

array typical(const array& row, float p, int min_keep) {
  const array log_p = log_softmax(row);
  const array distance = mx::abs(mx::add(log_p, entropy(log_p)));
  const array order = mx::argsort(distance, 0);  // those that are out are infinitely far
  const array probability = mx::take(mx::exp(log_p), order, 0);
  const array before = mx::subtract(mx::cumsum(probability, 0), probability);
  const array wanted = mx::logical_or(
      mx::less_equal(before, scalar(p)),
      mx::less(ranks(row.shape(0)), array(std::max(min_keep, 1))));
  return keep(in_place(wanted, order), row);
}

array top_n_sigma(const array& row, float n) {
  const array in = alive(row);
  const array size = count(in);
  const array mean = mx::divide(mx::sum(mx::where(in, row, scalar(0))), size);
  const array variance =
      mx::divide(mx::sum(mx::where(in, mx::square(mx::subtract(row, mean)), scalar(0))), size);
  const array lowest = mx::subtract(mx::max(row), mx::multiply(scalar(n), mx::sqrt(variance)));
  return keep(mx::greater_equal(row, lowest), row);
}

array exclude_top_choices(const array& row, float threshold, int min_keep) {
  const array reaches =
      mx::logical_and(alive(row), mx::greater_equal(mx::exp(log_softmax(row)), scalar(threshold)));
  const array infinity = mx::negative(never());
  const array least = mx::min(mx::where(reaches, row, infinity));
  const array above = mx::logical_and(reaches, mx::greater(row, least));
  const array left = mx::subtract(count(alive(row)), count(above));
  const array goes = mx::logical_and(above, mx::greater_equal(left, scalar(std::max(min_keep, 1))));
  return mx::where(goes, never(), row);
}

array temperature(const array& row, float temperature, float range, float exponent) {
  if (range <= 0.0f) {
    if (temperature == 0.0f) {
      return keep(mx::equal(ranks(row.shape(0)), mx::astype(mx::argmax(row), mx::int32)), row);
    }
    return mx::divide(row, scalar(std::max(temperature, kLowestTemperature)));
  }
  const array size = count(alive(row));
  const array several = mx::greater(size, scalar(1));
  const array even = mx::log(mx::maximum(size, scalar(2)));
  const array spread = mx::clip(mx::divide(entropy(log_softmax(row)), even), scalar(0), scalar(1));
  const float low = std::max(0.0f, temperature - range);
  const array dynamic = mx::add(
      scalar(low),
      mx::multiply(scalar(temperature + range - low), mx::power(spread, scalar(exponent))));
  const array divisor = mx::maximum(dynamic, scalar(kLowestTemperature));
  return mx::divide(row, mx::where(several, divisor, scalar(1)));
}

array mirostat(const array& row, const array& mu, int version) {
  if (version == 2) {
    const array surprise = mx::multiply(mx::negative(log_softmax(row)), scalar(1 / std::log(2.0)));
    return keep(mx::logical_or(mx::less_equal(surprise, mu), mx::equal(row, mx::max(row))), row);
  }
  const int size = row.shape(0);
  const int estimated = std::min(100, size);
  const array order = mx::argsort(mx::negative(row), 0);
  const array best = mx::slice(mx::take(row, order, 0), {0}, {estimated});
  const array b =
      mx::subtract(mx::slice(best, {0}, {estimated - 1}), mx::slice(best, {1}, {estimated}));
  std::vector<float> logs;
  for (int i = 0; i + 1 < estimated; ++i) {
    logs.push_back(std::log(static_cast<float>(i + 2) / static_cast<float>(i + 1)));
  }
  const array t = array(logs.begin(), {estimated - 1}, mx::float32);
  const array known = mx::isfinite(b);
  const array zero = scalar(0);
  const array s = mx::divide(
      mx::sum(mx::where(known, mx::multiply(t, b), zero)),
      mx::sum(mx::where(known, mx::square(t), zero)));
  const array epsilon = mx::subtract(s, scalar(1));
  const array above = mx::multiply(epsilon, mx::power(scalar(2), mu));
  const array below = mx::subtract(scalar(1), mx::power(scalar(size), mx::negative(epsilon)));
  const array k = mx::power(mx::divide(above, below), mx::divide(scalar(1), s));
  // Equal logits have no exponent (NaN): nothing is cut then.
  const array most =
      mx::where(mx::less(k, scalar(size)), mx::maximum(mx::floor(k), scalar(1)), scalar(size));
  return keep(in_place(mx::less(mx::astype(ranks(size), mx::float32), most), order), row);
}

array mask(std::span<const uint32_t> words, int size) {
  const auto count = static_cast<size_t>(size + 31) / 32;
  std::vector<uint32_t> whole(
      words.begin(), words.begin() + static_cast<int64_t>(std::min(words.size(), count)));
  whole.resize(count, 0);
  return mask(array(whole.data(), {static_cast<int>(count)}, mx::uint32), size);
}

array mask(const array& words, int size) {
  const array bits = mx::bitwise_and(
      mx::right_shift(
          mx::reshape(words, {-1, 1}), mx::reshape(mx::arange(0, 32, mx::uint32), {1, 32})),
      array(1, mx::uint32));
  return mx::astype(mx::slice(mx::reshape(bits, {-1}), {0}, {size}), mx::bool_);
}

}  // namespace quince::composed
