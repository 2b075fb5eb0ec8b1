// AVX2, FMA, F16C: 8 floats. Part of elementwise_simd.h, which see.
#pragma once

#include <immintrin.h>

#include "kernels/elementwise_bits.h"

namespace quince::kernels {
namespace {

constexpr int kLanes = 8;
using F = __m256;

inline F zero() {
  return _mm256_setzero_ps();
}
inline F splat(float x) {
  return _mm256_set1_ps(x);
}
inline F load(const float* p) {
  return _mm256_loadu_ps(p);
}
inline void store(float* p, F x) {
  _mm256_storeu_ps(p, x);
}
inline __m256i first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline F load_some(const float* p, int n) {
  return _mm256_maskload_ps(p, first_lanes(n));
}
inline void store_some(float* p, F x, int n) {
  _mm256_maskstore_ps(p, first_lanes(n), x);
}
inline F add(F a, F b) {
  return _mm256_add_ps(a, b);
}
inline F sub(F a, F b) {
  return _mm256_sub_ps(a, b);
}
inline F mul(F a, F b) {
  return _mm256_mul_ps(a, b);
}
inline F div(F a, F b) {
  return _mm256_div_ps(a, b);
}
inline F fma(F a, F b, F c) {
  return _mm256_fmadd_ps(a, b, c);
}
inline F max(F a, F b) {
  return _mm256_max_ps(a, b);
}
inline F min(F a, F b) {
  return _mm256_min_ps(a, b);
}
inline F abs(F a) {
  return _mm256_andnot_ps(splat(-0.0f), a);
}
inline F round(F a) {
  return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline F select_less(F a, F b, F yes, F no) {
  return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
inline F scale_by_power(F a, F n) {
  // In two halves, so that results near the ends of the range come out right.
  __m256i whole = _mm256_cvtps_epi32(n);
  __m256i half = _mm256_srai_epi32(whole, 1);
  __m256i rest = _mm256_sub_epi32(whole, half);
  __m256i bias = _mm256_set1_epi32(127);
  F first = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
  F second = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
  return mul(mul(a, first), second);
}
inline float first(F a) {
  return _mm256_cvtss_f32(a);
}
inline float sum(F a) {
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
inline float largest(F a) {
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}
inline F load_f16(const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline F load_bf16(const uint16_t* p) {
  __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
inline void store_f16(uint16_t* p, F x) {
  F clamped = min(max(x, splat(-kLargestF16)), splat(kLargestF16));
  _mm_storeu_si128(
      reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(clamped, _MM_FROUND_TO_NEAREST_INT));
}
inline void store_bf16(uint16_t* p, F x) {
  __m256i bits = _mm256_castps_si256(x);
  __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  bits = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  bits = _mm256_srli_epi32(bits, 16);
  __m128i packed =
      _mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), packed);
}
inline F load_i8(const int8_t* p) {
  return _mm256_cvtepi32_ps(
      _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
// Four bits of each byte, from bit `shift` on, less 8.
inline F load_nibbles(const uint8_t* p, int shift) {
  __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  bytes = _mm_and_si128(_mm_srl_epi16(bytes, _mm_cvtsi32_si128(shift)), _mm_set1_epi8(15));
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_sub_epi8(bytes, _mm_set1_epi8(8))));
}
// The Walsh-Hadamard transform of the lanes, not normalized.
inline F hadamard_lanes(F x) {
  const F four = _mm256_setr_ps(1, 1, 1, 1, -1, -1, -1, -1);
  const F two = _mm256_setr_ps(1, 1, -1, -1, 1, 1, -1, -1);
  const F one = _mm256_setr_ps(1, -1, 1, -1, 1, -1, 1, -1);
  x = fma(x, four, _mm256_permute2f128_ps(x, x, 1));
  x = fma(x, two, _mm256_permute_ps(x, 0x4e));
  return fma(x, one, _mm256_permute_ps(x, 0xb1));
}

}  // namespace
}  // namespace quince::kernels
