// One vector of floats in whatever instruction set this translation unit is compiled for: AVX-512,
// AVX2, NEON, or a single float. Kernels are written once on top of it (*_impl.h) and compiled once
// per instruction set. Everything here has internal linkage on purpose: the linker must never merge
// a function compiled for AVX-512 into code that runs on a lesser processor. For the same reason
// the kernels call no inline function of the standard library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace quince::kernels {
namespace {

inline float bits_to_float(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

inline uint32_t float_to_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

constexpr float kInfinity = __builtin_inff();
constexpr float kLargestF16 = 65504.0f;

// 16-bit formats one number at a time: the reference, and what has no instruction for it.
inline float f16_bits_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t magnitude = half & 0x7fff;
  if (magnitude < 0x0400) {  // zero and subnormals: multiples of 2^-24
    return bits_to_float(sign | float_to_bits(static_cast<float>(magnitude) * 0x1p-24f));
  }
  const uint32_t exponent = magnitude >= 0x7c00 ? 0x7f800000 : (112u << 23);
  return bits_to_float(sign | ((magnitude << 13) + exponent));
}

// Rounds to nearest even. Beyond the range: the largest finite number, so that one outlier does not
// poison a whole cache with infinities.
inline uint16_t float_to_f16_bits(float value) {
  const uint16_t sign = static_cast<uint16_t>((float_to_bits(value) >> 16) & 0x8000);
  const uint32_t magnitude = float_to_bits(value) & 0x7fffffff;
  if (magnitude > 0x7f800000) {
    return sign | 0x7e00;
  }
  if (magnitude >= 0x477fe000) {
    return sign | 0x7bff;
  }
  if (magnitude <
      0x38800000) {  // result is subnormal: adding 0.5 leaves it in the low bits, rounded
    return sign |
           static_cast<uint16_t>(float_to_bits(bits_to_float(magnitude) + 0.5f) - 0x3f000000);
  }
  const uint32_t rounded = magnitude + 0x0fff + ((magnitude >> 13) & 1);
  return sign | static_cast<uint16_t>((rounded - (112u << 23)) >> 13);
}

inline float bf16_bits_to_float(uint16_t bits) {
  return bits_to_float(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t float_to_bf16_bits(float value) {
  const uint32_t bits = float_to_bits(value);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

#if defined(__AVX512F__)

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

#elif defined(__AVX2__)

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

#elif defined(__aarch64__) && defined(__ARM_FEATURE_FP16_VECTOR_ARITHMETIC)

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

#else

constexpr int kLanes = 1;
using F = float;

inline F zero() {
  return 0;
}
inline F splat(float x) {
  return x;
}
inline F load(const float* p) {
  return *p;
}
inline void store(float* p, F x) {
  *p = x;
}
inline F load_some(const float* p, int n) {
  return n > 0 ? *p : 0;
}
inline void store_some(float* p, F x, int n) {
  if (n > 0) {
    *p = x;
  }
}
inline F add(F a, F b) {
  return a + b;
}
inline F sub(F a, F b) {
  return a - b;
}
inline F mul(F a, F b) {
  return a * b;
}
inline F div(F a, F b) {
  return a / b;
}
inline F fma(F a, F b, F c) {
  return a * b + c;
}
inline F max(F a, F b) {
  return a > b ? a : b;
}
inline F min(F a, F b) {
  return a < b ? a : b;
}
inline F abs(F a) {
  return __builtin_fabsf(a);
}
inline F round(F a) {
  return __builtin_rintf(a);
}
inline F select_less(F a, F b, F yes, F no) {
  return a < b ? yes : no;
}
inline F scale_by_power(F a, F n) {
  int whole = static_cast<int>(n);
  int half = whole >> 1;
  float first = bits_to_float(static_cast<uint32_t>(half + 127) << 23);
  float second = bits_to_float(static_cast<uint32_t>(whole - half + 127) << 23);
  return a * first * second;
}
inline float first(F a) {
  return a;
}
inline float sum(F a) {
  return a;
}
inline float largest(F a) {
  return a;
}
inline F load_f16(const uint16_t* p) {
  return f16_bits_to_float(*p);
}
inline F load_bf16(const uint16_t* p) {
  return bf16_bits_to_float(*p);
}
inline void store_f16(uint16_t* p, F x) {
  *p = float_to_f16_bits(x);
}
inline void store_bf16(uint16_t* p, F x) {
  *p = float_to_bf16_bits(x);
}

#endif

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
