// 16-bit floats one number at a time: the reference, and what has no instruction for it. Internal
// linkage: see elementwise_simd.h.
#pragma once

#include <cstdint>
#include <cstring>

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

}  // namespace
}  // namespace quince::kernels
