// Work on single activation rows of floats: norms, rotary embedding, activations, sums. One table
// of functions per instruction set; all of them run on the calling thread, take unaligned pointers
// and any length. No MLX.
#pragma once

#include <cstdint>

#include "kernels/cpu.h"

namespace quince::kernels {

struct RowOps {
  // out[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i]. out may be x. "1 + weight" norms (gemma) add
  // the 1 when weights are loaded.
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n, float* out);
  // x[i] += y[i]
  void (*add)(float* x, const float* y, int64_t n);
  // x[i] *= factor
  void (*scale)(float* x, float factor, int64_t n);
  // x[i] = cap * tanh(x[i] / cap)
  void (*softcap)(float* x, float cap, int64_t n);

  // Rotates pairs (x[i], x[i + half]), the half-split layout of Hugging Face checkpoints:
  // x[i] cos[i] - x[i + half] sin[i],  x[i + half] cos[i] + x[i] sin[i].
  void (*rope)(float* x, const float* cos, const float* sin, int64_t half);

  // out[i] = act(gate[i]) * up[i]; out may be gate or up.
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* out);  // g / (1 + e^-g)
  // 0.5 g (1 + tanh(sqrt(2 / pi) (g + 0.044715 g^3)))
  void (*gelu_tanh_mul)(const float* gate, const float* up, int64_t n, float* out);
  // 0.5 g (1 + erf(g / sqrt 2))
  void (*gelu_mul)(const float* gate, const float* up, int64_t n, float* out);

  // out[i] = e^x[i]
  void (*exp)(const float* x, int64_t n, float* out);
};

// The best table that the path allows.
const RowOps& row_ops(CpuPath path);

}  // namespace quince::kernels
