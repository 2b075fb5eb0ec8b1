// Small floating-point formats to f32, exactly. Branch-free, so that loops over them vectorize on
// any processor.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

namespace quince {

inline float bf16_to_f32(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// IEEE binary16. Subnormals go through an integer conversion, so flush-to-zero modes do no harm.
inline float f16_to_f32(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t magnitude = bits & 0x7fff;
  const uint32_t normal = (magnitude << 13) + (112u << 23);
  const uint32_t special = (magnitude << 13) | 0x7f800000u;
  const uint32_t small =
      std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  const uint32_t value = magnitude < 0x0400 ? small : (magnitude >= 0x7c00 ? special : normal);
  return std::bit_cast<float>(sign | value);
}

// OCP 8-bit E5M2 is the upper half of a binary16.
inline float f8_e5m2_to_f32(uint8_t bits) {
  return f16_to_f32(static_cast<uint16_t>(bits << 8));
}

namespace detail {

// OCP 8-bit E4M3 ("fn"): bias 7, no infinities, NaN is all ones.
constexpr std::array<float, 256> make_f8_e4m3_table() {
  std::array<float, 256> table{};
  for (int i = 0; i < 256; ++i) {
    const int exponent = (i >> 3) & 15;
    const int mantissa = i & 7;
    float value = exponent == 0 ? static_cast<float>(mantissa) / 8.0f
                                : 1.0f + static_cast<float>(mantissa) / 8.0f;
    for (int e = exponent == 0 ? 1 : exponent; e < 7; ++e) {
      value *= 0.5f;
    }
    for (int e = 7; e < exponent; ++e) {
      value *= 2.0f;
    }
    if ((i & 0x7f) == 0x7f) {
      value = std::numeric_limits<float>::quiet_NaN();
    }
    table[i] = i & 0x80 ? -value : value;
  }
  return table;
}
inline constexpr std::array<float, 256> kF8E4m3 = make_f8_e4m3_table();

}  // namespace detail

inline float f8_e4m3_to_f32(uint8_t bits) {
  return detail::kF8E4m3[bits];
}

}  // namespace quince
