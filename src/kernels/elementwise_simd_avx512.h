// AVX-512: 16 floats. Part of elementwise_simd.h, which see.
#pragma once

#include <immintrin.h>

#include "kernels/elementwise_bits.h"

namespace quince::kernels {
namespace {

constexpr int kLanes = 16;
using F = __m512;

inline F zero() {
  return _mm512_setzero_ps();
}
inline F splat(float x) {
  return _mm512_set1_ps(x);
}
inline F load(const float* p) {
  return _mm512_loadu_ps(p);
}
inline void store(float* p, F x) {
  _mm512_storeu_ps(p, x);
}
inline F load_some(const float* p, int n) {  // the rest is 0
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p);
}
inline void store_some(float* p, F x, int n) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), x);
}
inline F add(F a, F b) {
  return _mm512_add_ps(a, b);
}
inline F sub(F a, F b) {
  return _mm512_sub_ps(a, b);
}
inline F mul(F a, F b) {
  return _mm512_mul_ps(a, b);
}
inline F div(F a, F b) {
  return _mm512_div_ps(a, b);
}
inline F fma(F a, F b, F c) {  // a * b + c
  return _mm512_fmadd_ps(a, b, c);
}
inline F max(F a, F b) {
  return _mm512_max_ps(a, b);
}
inline F min(F a, F b) {
  return _mm512_min_ps(a, b);
}
inline F abs(F a) {
  return _mm512_abs_ps(a);
}
inline F round(F a) {
  return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline F select_less(F a, F b, F yes, F no) {  // a < b ? yes : no
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}
inline F scale_by_power(F a, F n) {  // a * 2^n, n integral
  return _mm512_scalef_ps(a, n);
}
inline float first(F a) {
  return _mm512_cvtss_f32(a);
}
inline float sum(F a) {
  return _mm512_reduce_add_ps(a);
}
inline float largest(F a) {
  return _mm512_reduce_max_ps(a);
}
inline F load_f16(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline F load_bf16(const uint16_t* p) {
  __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
inline void store_f16(uint16_t* p, F x) {
  F clamped = min(max(x, splat(-kLargestF16)), splat(kLargestF16));
  _mm256_storeu_si256(
      reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(clamped, _MM_FROUND_TO_NEAREST_INT));
}
inline void store_bf16(uint16_t* p, F x) {
  __m512i bits = _mm512_castps_si512(x);
  __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  bits = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  _mm256_storeu_si256(
      reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16)));
}
inline F load_i8(const int8_t* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
// Four bits of each byte, from bit `shift` on, less 8.
inline F load_nibbles(const uint8_t* p, int shift) {
  __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  bytes = _mm_and_si128(_mm_srl_epi16(bytes, _mm_cvtsi32_si128(shift)), _mm_set1_epi8(15));
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_sub_epi8(bytes, _mm_set1_epi8(8))));
}
// The Walsh-Hadamard transform of the lanes, not normalized.
inline F hadamard_lanes(F x) {
  const auto step = [](F own, F other, __mmask16 upper) {
    return _mm512_add_ps(_mm512_mask_sub_ps(own, upper, zero(), own), other);
  };
  x = step(x, _mm512_shuffle_f32x4(x, x, 0x4e), 0xff00);
  x = step(x, _mm512_shuffle_f32x4(x, x, 0xb1), 0xf0f0);
  x = step(x, _mm512_permute_ps(x, 0x4e), 0xcccc);
  return step(x, _mm512_permute_ps(x, 0xb1), 0xaaaa);
}

}  // namespace
}  // namespace quince::kernels
