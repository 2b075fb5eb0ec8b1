// Scales of packed blocks as floats, for the AVX2 and NEON kernels; internal linkage as in
// matmul_impl.h. The loops have fixed lengths: the compiler vectorizes them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/matmul_kernels.h"

namespace quince::kernels {
namespace {

constexpr int kWindow = kSuperBlock / kChunk;

// Scales and biases of up to kWindow chunks, [chunk][group][16]: w = scale * code + bias, or
// scale * (code - 128) + bias for codes of 8 bits.
struct ScaleWindow {
  alignas(64) float scale[kWindow * 2 * kBlockRows];
  alignas(64) float bias[kWindow * 2 * kBlockRows];
};

inline int byte_at(const std::byte* at) {
  return static_cast<int>(*at);
}

// 16 numbers as they are stored to floats. Loops of fixed length: the compiler vectorizes them.
inline void widen(ScalePlan plan, const std::byte* at, float* out) {
  if (plan == ScalePlan::direct_f32) {
    __builtin_memcpy(out, at, kBlockRows * sizeof(float));
  } else if (plan == ScalePlan::direct_bf16) {
    uint16_t in[kBlockRows];
    __builtin_memcpy(in, at, sizeof(in));
    for (int r = 0; r < kBlockRows; ++r) {
      out[r] = __builtin_bit_cast(float, static_cast<uint32_t>(in[r]) << 16);
    }
  } else {
    _Float16 in[kBlockRows];
    __builtin_memcpy(in, at, sizeof(in));
    for (int r = 0; r < kBlockRows; ++r) {
      out[r] = static_cast<float>(in[r]);
    }
  }
}

// Sub-group g of a super block, see packed_layout.h. d and dmin: 16 floats each.
inline void expand_sub(
    ScalePlan plan,
    const std::byte* unit,
    int g,
    const float* d,
    const float* dmin,
    float* scale,
    float* bias) {
  for (int r = 0; r < kBlockRows; ++r) {
    int s = 0;
    int m = 0;
    switch (plan) {
      case ScalePlan::k_6_6: {
        const int low = byte_at(unit + 64 + 16 * g + r);
        const int top = byte_at(unit + 192 + 16 * (g % 4) + r) >> (g / 4 * 4);
        s = (low & 15) | (top & 3) << 4;
        m = low >> 4 | (top >> 2 & 3) << 4;
        break;
      }
      case ScalePlan::k_8:
        s = static_cast<int8_t>(unit[16 * g + r]);
        break;
      case ScalePlan::k_6: {
        const int low = byte_at(unit + 16 * (g % 8) + r) >> (g / 8 * 4) & 15;
        s = (low | (byte_at(unit + 128 + 16 * (g % 4) + r) >> (g / 4 * 2) & 3) << 4) - 32;
        break;
      }
      default:  // k_4_4
        s = byte_at(unit + 16 * g + r) & 15;
        m = byte_at(unit + 16 * g + r) >> 4;
    }
    scale[r] = d[r] * static_cast<float>(s);
    bias[r] = -(dmin[r] * static_cast<float>(m));
  }
}

struct SuperPlace {
  int bytes;  // of a super block's scales
  int d;      // offsets; dmin < 0: none
  int dmin;
};

inline SuperPlace super_place(ScalePlan plan) {
  switch (plan) {
    case ScalePlan::k_6_6:
      return {256, 0, 32};
    case ScalePlan::k_8:
      return {288, 256, -1};
    case ScalePlan::k_6:
      return {224, 192, -1};
    default:
      return {320, 256, 288};
  }
}

// first: a multiple of kWindow. code_zero: what the kernel takes off the codes itself.
inline void expand_window(
    const PackedMatrix::Layout& w,
    const std::byte* block,
    int64_t first,
    int count,
    int code_zero,
    ScaleWindow& out) {
  const std::byte* scales = block + w.scale_offset;
  const int groups = w.format.group == 16 ? 2 * count : count;
  if (w.format.kind == PackedKind::two_level) {
    const SuperPlace place = super_place(w.plan);
    const std::byte* unit = scales + first / kWindow * place.bytes;
    float d[kBlockRows];
    float dmin[kBlockRows] = {};
    widen(ScalePlan::direct_f16, unit + place.d, d);
    if (place.dmin >= 0) {
      widen(ScalePlan::direct_f16, unit + place.dmin, dmin);
    }
    for (int g = 0; g < groups; ++g) {
      const int at = g * kBlockRows;
      switch (w.plan) {  // constants, so that each loop is compiled for its plan
        case ScalePlan::k_6_6:
          expand_sub(ScalePlan::k_6_6, unit, g, d, dmin, out.scale + at, out.bias + at);
          break;
        case ScalePlan::k_8:
          expand_sub(ScalePlan::k_8, unit, g, d, dmin, out.scale + at, out.bias + at);
          break;
        case ScalePlan::k_6:
          expand_sub(ScalePlan::k_6, unit, g, d, dmin, out.scale + at, out.bias + at);
          break;
        default:
          expand_sub(ScalePlan::k_4_4, unit, g, d, dmin, out.scale + at, out.bias + at);
      }
    }
  } else {
    const int one = w.plan == ScalePlan::direct_f32 ? 64 : 32;  // bytes of 16
    const int unit = w.format.biased ? 2 * one : one;
    for (int c = 0; c < count; ++c) {
      const std::byte* at = scales + (first + c) * kChunk / w.format.group * unit;
      widen(w.plan, at, out.scale + c * kBlockRows);
      if (w.format.biased) {
        widen(w.plan, at + one, out.bias + c * kBlockRows);
      }
    }
  }
  const auto shift = static_cast<float>(code_zero - (w.format.biased ? 0 : w.zero));
  if (!w.format.biased) {
    for (int i = 0; i < groups * kBlockRows; ++i) {
      out.bias[i] = shift * out.scale[i];
    }
  } else if (code_zero != 0) {
    for (int i = 0; i < groups * kBlockRows; ++i) {
      out.bias[i] += shift * out.scale[i];
    }
  }
}

}  // namespace
}  // namespace quince::kernels
