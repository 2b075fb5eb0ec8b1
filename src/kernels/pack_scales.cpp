#include "kernels/pack_plan.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "weights/ggml_blocks.h"

namespace quince::kernels {

namespace {

const uint8_t* at(const std::byte* row, int64_t offset) {
  return reinterpret_cast<const uint8_t*>(row) + offset;
}

// x16 halves at `out`.
void put_half(std::byte* out, int lane, const uint8_t* half) {
  std::memcpy(out + 2 * lane, half, 2);
}

template <int kBytes, bool kBiased>
void scales_direct(const std::byte* row, int64_t unit, int lane, std::byte* out) {
  const uint8_t* in = at(row, unit * kBytes);
  put_half(out, lane, in);
  if (kBiased) {
    put_half(out + 32, lane, in + 2);
  }
}

void or_byte(std::byte* out, int index, int lane, int value) {
  out[16 * index + lane] |= static_cast<std::byte>(value);
}

template <int kBytes>
void scales_k_6_6(const std::byte* row, int64_t unit, int lane, std::byte* out) {
  const uint8_t* in = at(row, unit * kBytes);
  put_half(out, lane, in);
  put_half(out + 32, lane, in + 2);
  for (int j = 0; j < 8; ++j) {
    const ScaleMin s = k_scale_min(in + 4, j);
    or_byte(out + 64, j, lane, (s.scale & 15) | ((s.min & 15) << 4));
    or_byte(out + 192, j % 4, lane, ((s.scale >> 4) | (s.min >> 4 << 2)) << (j / 4 * 4));
  }
}

void scales_k_8(const std::byte* row, int64_t unit, int lane, std::byte* out) {
  const uint8_t* in = at(row, unit * 210);
  for (int j = 0; j < 16; ++j) {
    out[16 * j + lane] = static_cast<std::byte>(in[192 + j]);
  }
  put_half(out + 256, lane, in + 208);
}

void scales_k_6(const std::byte* row, int64_t unit, int lane, std::byte* out) {
  const uint8_t* in = at(row, unit * 110);
  for (int j = 0; j < 16; ++j) {
    const int scale = q3_k_scale(in + 96, j) + 32;
    or_byte(out, j % 8, lane, (scale & 15) << (j / 8 * 4));
    or_byte(out + 128, j % 4, lane, (scale >> 4) << (j / 4 * 2));
  }
  put_half(out + 192, lane, in + 108);
}

void scales_k_4_4(const std::byte* row, int64_t unit, int lane, std::byte* out) {
  const uint8_t* in = at(row, unit * 84);
  for (int j = 0; j < 16; ++j) {
    out[16 * j + lane] = static_cast<std::byte>(in[j]);
  }
  put_half(out + 256, lane, in + 80);
  put_half(out + 288, lane, in + 82);
}

}  // namespace

UnitScales unit_scales(TensorType type) {
  switch (type) {
    case TensorType::q4_0:
      return scales_direct<18, false>;
    case TensorType::q4_1:
      return scales_direct<20, true>;
    case TensorType::q5_0:
      return scales_direct<22, false>;
    case TensorType::q5_1:
      return scales_direct<24, true>;
    case TensorType::q8_0:
      return scales_direct<34, false>;
    case TensorType::q2_k:
      return scales_k_4_4;
    case TensorType::q3_k:
      return scales_k_6;
    case TensorType::q4_k:
      return scales_k_6_6<144>;
    case TensorType::q5_k:
      return scales_k_6_6<176>;
    case TensorType::q6_k:
      return scales_k_8;
    default:
      return nullptr;
  }
}

float quantize_chunk(const float* values, bool exact_power, uint8_t* codes) {
  float largest = 0.0f;
  for (int i = 0; i < kChunk; ++i) {
    largest = std::max(largest, std::fabs(values[i]));
  }
  if (!(largest > 0.0f) || !std::isfinite(largest)) {
    std::fill(codes, codes + kChunk, uint8_t{128});
    return 0.0f;
  }
  const float scale = exact_power ? std::ldexp(1.0f, std::ilogb(largest) - 6) : largest / 127.0f;
  for (int i = 0; i < kChunk; ++i) {
    const float code = std::nearbyint(values[i] / scale) + 128.0f;
    codes[i] = code >= 1.0f ? static_cast<uint8_t>(std::min(code, 255.0f)) : uint8_t{1};  // NaN: 1
  }
  return scale;
}

}  // namespace quince::kernels
