// GGML's block formats to f32. Each function decodes `blocks` consecutive blocks, with the rounding
// of the reference (products and sums of f32, never fused), so results are equal to the bit.
// Source of the layouts: ggml's format description; "d" is a binary16 scale, sub-byte codes are
// little-endian within their byte.
//
//   name     elements bytes  layout (in order)
//   Q4_0       32     18  d, 16 bytes: low nibbles are elements 0-15, high ones 16-31; w = d (q -
//   8) Q4_1       32     20  d, m, nibbles as above; w = d q + m Q5_0       32     22  d, u32 fifth
//   bits, nibbles; w = d (q - 16) Q5_1       32     24  d, m, u32 fifth bits, nibbles; w = d q + m
//   Q8_0       32     34  d, 32 i8
//   Q2_K      256     84  16 bytes scale | min << 4, 64 bytes of 2-bit codes, d, dmin
//   Q3_K      256    110  32 bytes third bits, 64 bytes 2-bit codes, 12 bytes of 6-bit scales, d
//   Q4_K      256    144  d, dmin, 12 bytes of 6-bit scales and mins, 128 bytes of nibbles
//   Q5_K      256    176  d, dmin, 12 bytes as Q4_K, 32 bytes fifth bits, 128 bytes of nibbles
//   Q6_K      256    210  128 bytes low nibbles, 64 bytes upper 2 bits, 16 i8 scales, d
//   TQ1_0     256     54  52 bytes of five (the last 4: four) base-3 digits, d
//   TQ2_0     256     66  64 bytes of 2-bit codes, d; w = d (q - 1)
//   MXFP4      32     17  E8M0 exponent, 16 bytes of E2M1 nibbles (OCP Microscaling)
//   IQ*                   see ggml_iq.cpp
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace quince {

using BlockDecoder = void (*)(const std::byte* data, int64_t blocks, float* out);

void decode_q4_0(const std::byte* data, int64_t blocks, float* out);
void decode_q4_1(const std::byte* data, int64_t blocks, float* out);
void decode_q5_0(const std::byte* data, int64_t blocks, float* out);
void decode_q5_1(const std::byte* data, int64_t blocks, float* out);
void decode_q8_0(const std::byte* data, int64_t blocks, float* out);
void decode_q2_k(const std::byte* data, int64_t blocks, float* out);
void decode_q3_k(const std::byte* data, int64_t blocks, float* out);
void decode_q4_k(const std::byte* data, int64_t blocks, float* out);
void decode_q5_k(const std::byte* data, int64_t blocks, float* out);
void decode_q6_k(const std::byte* data, int64_t blocks, float* out);
void decode_tq1_0(const std::byte* data, int64_t blocks, float* out);
void decode_tq2_0(const std::byte* data, int64_t blocks, float* out);
void decode_mxfp4(const std::byte* data, int64_t blocks, float* out);
void decode_iq1_s(const std::byte* data, int64_t blocks, float* out);
void decode_iq1_m(const std::byte* data, int64_t blocks, float* out);
void decode_iq2_xxs(const std::byte* data, int64_t blocks, float* out);
void decode_iq2_xs(const std::byte* data, int64_t blocks, float* out);
void decode_iq2_s(const std::byte* data, int64_t blocks, float* out);
void decode_iq3_xxs(const std::byte* data, int64_t blocks, float* out);
void decode_iq3_s(const std::byte* data, int64_t blocks, float* out);
void decode_iq4_nl(const std::byte* data, int64_t blocks, float* out);
void decode_iq4_xs(const std::byte* data, int64_t blocks, float* out);

// Sub-scale and sub-min of group 0-7 of a Q4_K or Q5_K block from its 12 scale bytes:
// groups 0-3 hold theirs in the low 6 bits of bytes 0-3 (scale) and 4-7 (min); groups 4-7 hold the
// low 4 bits in bytes 8-11 and the upper 2 in the top bits of bytes 0-7.
struct ScaleMin {
  uint8_t scale;
  uint8_t min;
};
inline ScaleMin k_scale_min(const uint8_t* scales, int group) {
  if (group < 4) {
    return {static_cast<uint8_t>(scales[group] & 63), static_cast<uint8_t>(scales[group + 4] & 63)};
  }
  return {
      static_cast<uint8_t>((scales[group + 4] & 15) | (scales[group - 4] >> 6 << 4)),
      static_cast<uint8_t>((scales[group + 4] >> 4) | (scales[group] >> 6 << 4))};
}

// The 16 six-bit sub-scales (biased by 32) of a Q3_K block from its 12 bytes: bytes 0-7 hold the
// low nibbles of scales 0-7 (low) and 8-15 (high); bytes 8-11 the upper 2 bits, scale j at bits 2
// (j / 4) of byte j % 4.
inline int q3_k_scale(const uint8_t* scales, int group) {
  const int low = group < 8 ? scales[group] & 15 : scales[group - 8] >> 4;
  const int high = (scales[8 + group % 4] >> (2 * (group / 4))) & 3;
  return (low | (high << 4)) - 32;
}

template <typename T>
T load_unaligned(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

}  // namespace quince
