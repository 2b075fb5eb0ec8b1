// Loads of stored keys and values, and the online softmax of one row, on the vectors of
// elementwise_simd.h (see there on linkage). Shared by attention_impl.h and attention_amx.cpp.
#pragma once

#include "kernels/attention.h"
#include "kernels/attention_stored.h"
#include "kernels/elementwise_simd.h"

namespace quince::kernels {
namespace {

inline void scale_floats(float* x, int n, float factor) {
  F f = splat(factor);
  for (int i = 0; i < n; i += kLanes) {
    store(x + i, mul(load(x + i), f));
  }
}

// The online softmax keeps, for a row, the largest score so far, the sum of e^(score - largest),
// and the values weighted so. Before scores [0, n) join, hidden ones being -infinity: raises the
// maximum to theirs and rescales the rest. False when all are hidden. n and width are multiples
// of 16.
inline bool raise_maximum(
    const float* scores, int n, float& maximum, float& total, float* accumulator, int width) {
  F top = load(scores);
  for (int i = kLanes; i < n; i += kLanes) {
    top = max(top, load(scores + i));
  }
  float highest = largest(top);
  if (highest == -kInfinity) {
    return false;
  }
  if (highest > maximum) {
    if (maximum != -kInfinity) {
      float factor = first(exp(splat(maximum - highest)));
      total *= factor;
      scale_floats(accumulator, width, factor);
    }
    maximum = highest;
  }
  return true;
}

// Turns scores [0, n) into weights e^(score - maximum), which join the row's sum.
inline void softmax_step(
    float* scores, int n, float& maximum, float& total, float* accumulator, int width) {
  if (!raise_maximum(scores, n, maximum, total, accumulator, width)) {
    for (int i = 0; i < n; i += kLanes) {
      store(scores + i, zero());
    }
    return;
  }
  F shift = splat(maximum);
  F parts = zero();
  for (int i = 0; i < n; i += kLanes) {
    F p = exp(sub(load(scores + i), shift));
    parts = add(parts, p);
    store(scores + i, p);
  }
  total += sum(parts);
}

// Hides what the bits (one per position of a block) do not show.
inline void hide(float* scores, uint32_t visible) {
  for (uint32_t hidden = ~visible; hidden != 0; hidden &= hidden - 1) {
    scores[__builtin_ctz(hidden)] = -kInfinity;
  }
}

// KvSpan::visible_from and visible, without a call into code of another instruction set.
inline bool block_matters(const KvSpan& span, int64_t start, int64_t first, int64_t last) {
  return start <= last &&
         (span.window == 0 || start < span.keep || start + kKvBlock - 1 > first - span.window);
}

inline uint32_t low_bits(int64_t n) {
  return n >= 32 ? ~0u : n <= 0 ? 0u : (1u << n) - 1;
}

inline uint32_t visible_bits(const KvSpan& span, int64_t start, int64_t t) {
  uint32_t past = low_bits(t - start + 1);
  if (span.window == 0) {
    return past;
  }
  return past & (~low_bits(t - span.window - start + 1) | low_bits(span.keep - start));
}

}  // namespace
}  // namespace quince::kernels
