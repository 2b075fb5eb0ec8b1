// Any processor: one float. Part of elementwise_simd.h, which see.
#pragma once

#include "kernels/elementwise_bits.h"

namespace quince::kernels {
namespace {

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
inline F load_i8(const int8_t* p) {
  return static_cast<float>(*p);
}
inline F load_nibbles(const uint8_t* p, int shift) {  // four bits, from bit `shift` on, less 8
  return static_cast<float>((*p >> shift & 15) - 8);
}
inline F hadamard_lanes(F x) {
  return x;
}

}  // namespace
}  // namespace quince::kernels
