// Activations on vectors of elementwise_simd.h (see there on linkage).
#pragma once

#include "kernels/elementwise_simd.h"

namespace quince::kernels {
namespace {

// 1 / (1 + e^-x)
inline F sigmoid(F x) {
  return div(splat(1.0f), add(splat(1.0f), exp(sub(zero(), x))));
}

inline F silu(F g) {
  return mul(g, sigmoid(g));
}

inline F gelu_tanh(F g) {
  // 0.5 (1 + tanh(u)) = sigmoid(2u)
  const F twice = splat(1.5957691216057308f);  // 2 sqrt(2 / pi)
  F cubic = fma(mul(mul(g, g), g), splat(0.044715f), g);
  return mul(g, sigmoid(mul(twice, cubic)));
}

// erfc(z) for z >= 0 as t exp(-z^2 + P(t)), t = 1 / (1 + z / 2); P fitted on [0, 9.2] with relative
// error 1.6e-8.
inline F erfc_positive(F z) {
  const float kP[] = {
      -1.2655833425349723f,
      1.0019184075461813f,
      0.3524245057316276f,
      0.23609436486881366f,
      -0.7431964704252298f,
      1.7275239784238985f,
      -3.626497351791645f,
      4.296385537603905f,
      -2.815165081341478f,
      0.9784728766567741f,
      -0.1423774091242394f};
  F t = div(splat(1.0f), fma(z, splat(0.5f), splat(1.0f)));
  F p = splat(kP[10]);
  for (int i = 9; i >= 0; --i) {
    p = fma(p, t, splat(kP[i]));
  }
  return mul(t, exp(sub(p, mul(z, z))));
}

inline F gelu(F g) {
  F tail = mul(splat(0.5f), erfc_positive(mul(abs(g), splat(0.70710678118654752f))));
  return mul(g, select_less(g, zero(), tail, sub(splat(1.0f), tail)));
}

}  // namespace
}  // namespace quince::kernels
