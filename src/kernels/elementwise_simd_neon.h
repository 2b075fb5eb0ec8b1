// ARMv8.2 with half precision: 4 floats. Part of elementwise_simd.h, which see.
#pragma once

#include <arm_neon.h>

#include "kernels/elementwise_bits.h"

namespace quince::kernels {
namespace {

constexpr int kLanes = 4;
using F = float32x4_t;

inline F zero() {
  return vdupq_n_f32(0);
}
inline F splat(float x) {
  return vdupq_n_f32(x);
}
inline F load(const float* p) {
  return vld1q_f32(p);
}
inline void store(float* p, F x) {
  vst1q_f32(p, x);
}
inline F load_some(const float* p, int n) {
  float lanes[4] = {};
  for (int i = 0; i < n; ++i) {
    lanes[i] = p[i];
  }
  return vld1q_f32(lanes);
}
inline void store_some(float* p, F x, int n) {
  float lanes[4];
  vst1q_f32(lanes, x);
  for (int i = 0; i < n; ++i) {
    p[i] = lanes[i];
  }
}
inline F add(F a, F b) {
  return vaddq_f32(a, b);
}
inline F sub(F a, F b) {
  return vsubq_f32(a, b);
}
inline F mul(F a, F b) {
  return vmulq_f32(a, b);
}
inline F div(F a, F b) {
  return vdivq_f32(a, b);
}
inline F fma(F a, F b, F c) {
  return vfmaq_f32(c, a, b);
}
inline F max(F a, F b) {
  return vmaxq_f32(a, b);
}
inline F min(F a, F b) {
  return vminq_f32(a, b);
}
inline F abs(F a) {
  return vabsq_f32(a);
}
inline F round(F a) {
  return vrndnq_f32(a);
}
inline F select_less(F a, F b, F yes, F no) {
  return vbslq_f32(vcltq_f32(a, b), yes, no);
}
inline F scale_by_power(F a, F n) {
  int32x4_t whole = vcvtq_s32_f32(n);
  int32x4_t half = vshrq_n_s32(whole, 1);
  int32x4_t rest = vsubq_s32(whole, half);
  int32x4_t bias = vdupq_n_s32(127);
  F first = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, bias), 23));
  F second = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(rest, bias), 23));
  return mul(mul(a, first), second);
}
inline float first(F a) {
  return vgetq_lane_f32(a, 0);
}
inline float sum(F a) {
  return vaddvq_f32(a);
}
inline float largest(F a) {
  return vmaxvq_f32(a);
}
inline F load_f16(const uint16_t* p) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
inline F load_bf16(const uint16_t* p) {
  return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
inline void store_f16(uint16_t* p, F x) {
  F clamped = min(max(x, splat(-kLargestF16)), splat(kLargestF16));
  vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(clamped)));
}
inline void store_bf16(uint16_t* p, F x) {
  uint32x4_t bits = vreinterpretq_u32_f32(x);
  uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  bits = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
  vst1_u16(p, vshrn_n_u32(bits, 16));
}
inline F load_i8(const int8_t* p) {
  int8_t bytes[8] = {};
  memcpy(bytes, p, 4);
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vld1_s8(bytes)))));
}
// Four bits of each byte, from bit `shift` on, less 8.
inline F load_nibbles(const uint8_t* p, int shift) {
  uint8_t bytes[8] = {};
  memcpy(bytes, p, 4);
  const uint8x8_t bits =
      vand_u8(vshl_u8(vld1_u8(bytes), vdup_n_s8(static_cast<int8_t>(-shift))), vdup_n_u8(15));
  const int8x8_t codes = vsub_s8(vreinterpret_s8_u8(bits), vdup_n_s8(8));
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(codes))));
}
// The Walsh-Hadamard transform of the lanes, not normalized.
inline F hadamard_lanes(F x) {
  const float two[4] = {1, 1, -1, -1};
  const float one[4] = {1, -1, 1, -1};
  x = fma(x, vld1q_f32(two), vextq_f32(x, x, 2));
  return fma(x, vld1q_f32(one), vrev64q_f32(x));
}

}  // namespace
}  // namespace quince::kernels
