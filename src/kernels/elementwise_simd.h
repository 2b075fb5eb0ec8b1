// One vector of floats in whatever instruction set this translation unit is compiled for: AVX-512,
// AVX2, NEON, or a single float. Kernels are written once on top of it (*_impl.h) and compiled once
// per instruction set. Everything here has internal linkage on purpose: the linker must never merge
// a function compiled for AVX-512 into code that runs on a lesser processor. For the same reason
// the kernels call no inline function of the standard library.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/elementwise_bits.h"

// Each defines kLanes, the vector type F, and the same functions on it.
#if defined(__AVX512F__)
#include "kernels/elementwise_simd_avx512.h"
#elif defined(__AVX2__)
#include "kernels/elementwise_simd_avx2.h"
#elif defined(__aarch64__) && defined(__ARM_FEATURE_FP16_VECTOR_ARITHMETIC)
#include "kernels/elementwise_simd_neon.h"
#else
#include "kernels/elementwise_simd_scalar.h"
#endif

namespace quince::kernels {
namespace {

// e^x: e^r * 2^n with x = n ln 2 + r, |r| <= ln 2 / 2; e^r by a polynomial fitted on Chebyshev
// nodes, relative error 1e-8 before rounding (within 2 ulp after). 0 below -87.3 (-infinity
// included).
inline F exp(F x) {
  const F lowest = splat(-87.33f);
  F clamped = min(max(x, lowest), splat(88.72f));
  F n = round(mul(clamped, splat(1.44269504089f)));
  F r = fma(n, splat(-0.693145751953125f), clamped);  // ln 2 in two parts, the first one exact
  r = fma(n, splat(-1.42860682030941723e-6f), r);
  F p = fma(splat(0.0013933655985755432f), r, splat(0.008363181544326978f));
  p = fma(p, r, splat(0.04166646484282843f));
  p = fma(p, r, splat(0.16666576967251084f));
  p = fma(p, r, splat(0.5000000013486078f));
  p = fma(p, mul(r, r), add(r, splat(1.0f)));
  return select_less(x, lowest, zero(), scale_by_power(p, n));
}

// Calls body(offset, load, store) over n floats in whole vectors and one partial one.
template <typename Body>
inline void for_vectors(int64_t n, const Body& body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    body(i, kLanes);
  }
  if (i < n) {
    body(i, static_cast<int>(n - i));
  }
}

inline F load_n(const float* p, int n) {
  return n == kLanes ? load(p) : load_some(p, n);
}

inline void store_n(float* p, F x, int n) {
  if (n == kLanes) {
    store(p, x);
  } else {
    store_some(p, x, n);
  }
}

}  // namespace
}  // namespace quince::kernels
