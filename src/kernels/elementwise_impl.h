// The functions of RowOps for the instruction set of the including file; see elementwise_simd.h on
// linkage.
#pragma once

#include "kernels/elementwise.h"
#include "kernels/elementwise_gates.h"

namespace quince::kernels {
namespace {

void rms_norm_row(const float* x, const float* weight, float eps, int64_t n, float* out) {
  F squares[4] = {zero(), zero(), zero(), zero()};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    for (int k = 0; k < 4; ++k) {
      F v = load(x + i + k * kLanes);
      squares[k] = fma(v, v, squares[k]);
    }
  }
  for_vectors(n - i, [&](int64_t j, int count) {
    F v = load_n(x + i + j, count);
    squares[0] = fma(v, v, squares[0]);
  });
  float total = sum(add(add(squares[0], squares[1]), add(squares[2], squares[3])));
  F factor = splat(1.0f / __builtin_sqrtf(total / static_cast<float>(n) + eps));
  for_vectors(n, [&](int64_t j, int count) {
    F v = mul(load_n(x + j, count), factor);
    store_n(out + j, mul(v, load_n(weight + j, count)), count);
  });
}

void add_row(float* x, const float* y, int64_t n) {
  for_vectors(n, [&](int64_t i, int count) {
    store_n(x + i, add(load_n(x + i, count), load_n(y + i, count)), count);
  });
}

void scale_row(float* x, float factor, int64_t n) {
  for_vectors(n, [&](int64_t i, int count) {
    store_n(x + i, mul(load_n(x + i, count), splat(factor)), count);
  });
}

void softcap_row(float* x, float cap, int64_t n) {
  // tanh(u) = 2 sigmoid(2u) - 1 loses digits near 0; there u - u^3/3 + 2u^5/15 is exact enough.
  for_vectors(n, [&](int64_t i, int count) {
    F u = mul(load_n(x + i, count), splat(1.0f / cap));
    F far = sub(mul(splat(2.0f), sigmoid(add(u, u))), splat(1.0f));
    F square = mul(u, u);
    F series = fma(square, splat(-17.0f / 315), splat(2.0f / 15));
    series = fma(series, square, splat(-1.0f / 3));
    series = fma(mul(series, square), u, u);
    store_n(x + i, mul(splat(cap), select_less(abs(u), splat(0.2f), series, far)), count);
  });
}

void rope_row(float* x, const float* cos, const float* sin, int64_t half) {
  for_vectors(half, [&](int64_t i, int count) {
    F first = load_n(x + i, count);
    F second = load_n(x + half + i, count);
    F c = load_n(cos + i, count);
    F s = load_n(sin + i, count);
    store_n(x + i, sub(mul(first, c), mul(second, s)), count);
    store_n(x + half + i, fma(second, c, mul(first, s)), count);
  });
}

void silu_mul_row(const float* gate, const float* up, int64_t n, float* out) {
  for_vectors(n, [&](int64_t i, int count) {
    store_n(out + i, mul(silu(load_n(gate + i, count)), load_n(up + i, count)), count);
  });
}

void gelu_tanh_mul_row(const float* gate, const float* up, int64_t n, float* out) {
  for_vectors(n, [&](int64_t i, int count) {
    store_n(out + i, mul(gelu_tanh(load_n(gate + i, count)), load_n(up + i, count)), count);
  });
}

void gelu_mul_row(const float* gate, const float* up, int64_t n, float* out) {
  for_vectors(n, [&](int64_t i, int count) {
    store_n(out + i, mul(gelu(load_n(gate + i, count)), load_n(up + i, count)), count);
  });
}

void exp_row(const float* x, int64_t n, float* out) {
  for_vectors(n, [&](int64_t i, int count) { store_n(out + i, exp(load_n(x + i, count)), count); });
}

constexpr RowOps kRowOps = {
    rms_norm_row,
    add_row,
    scale_row,
    softcap_row,
    rope_row,
    silu_mul_row,
    gelu_tanh_mul_row,
    gelu_mul_row,
    exp_row,
};

}  // namespace
}  // namespace quince::kernels
