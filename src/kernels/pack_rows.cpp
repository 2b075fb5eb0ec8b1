#include "kernels/pack_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "weights/ggml_blocks.h"

namespace quince::kernels {

namespace {

const uint8_t* at(const std::byte* row, int64_t offset) {
  return reinterpret_cast<const uint8_t*>(row) + offset;
}

// 16 bytes: low nibbles are elements 0-15, high ones 16-31.
void split_nibbles(const uint8_t* in, uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = in[i] & 15;
    codes[i + 16] = in[i] >> 4;
  }
}

// Bit i of `bits` becomes bit 4 of code i.
void add_fifth_bits(uint32_t bits, uint8_t* codes) {
  for (int i = 0; i < 32; ++i) {
    codes[i] |= static_cast<uint8_t>(((bits >> i) & 1) << 4);
  }
}

template <int kBytes, int kCodes>
void codes_q4(const std::byte* row, int64_t chunk, uint8_t* codes) {
  split_nibbles(at(row, chunk * kBytes + kCodes), codes);
}

template <int kBytes, int kCodes>
void codes_q5(const std::byte* row, int64_t chunk, uint8_t* codes) {
  const uint8_t* in = at(row, chunk * kBytes + kCodes);
  split_nibbles(in + 4, codes);
  add_fifth_bits(load_unaligned<uint32_t>(in), codes);
}

void codes_q8_0(const std::byte* row, int64_t chunk, uint8_t* codes) {
  const uint8_t* in = at(row, chunk * 34 + 2);
  for (int i = 0; i < 32; ++i) {
    codes[i] = in[i] ^ 0x80;
  }
}

void codes_q2_k(const std::byte* row, int64_t chunk, uint8_t* codes) {
  const int sub = static_cast<int>(chunk % 8);
  const uint8_t* in = at(row, chunk / 8 * 84 + 16 + sub / 4 * 32);
  const int shift = 2 * (sub % 4);
  for (int i = 0; i < 32; ++i) {
    codes[i] = (in[i] >> shift) & 3;
  }
}

void codes_q3_k(const std::byte* row, int64_t chunk, uint8_t* codes) {
  const int sub = static_cast<int>(chunk % 8);
  const uint8_t* high = at(row, chunk / 8 * 110);
  const uint8_t* in = high + 32 + sub / 4 * 32;
  const int shift = 2 * (sub % 4);
  for (int i = 0; i < 32; ++i) {
    codes[i] = static_cast<uint8_t>(((in[i] >> shift) & 3) | (((high[i] >> sub) & 1) << 2));
  }
}

// Q4_K and Q5_K: byte i of each 32 holds element i of two neighbouring chunks.
void codes_k_nibbles(const uint8_t* in, int sub, uint8_t* codes) {
  const uint8_t* q = in + sub / 2 * 32;
  const int shift = 4 * (sub % 2);
  for (int i = 0; i < 32; ++i) {
    codes[i] = (q[i] >> shift) & 15;
  }
}

void codes_q4_k(const std::byte* row, int64_t chunk, uint8_t* codes) {
  codes_k_nibbles(at(row, chunk / 8 * 144 + 16), static_cast<int>(chunk % 8), codes);
}

void codes_q5_k(const std::byte* row, int64_t chunk, uint8_t* codes) {
  const int sub = static_cast<int>(chunk % 8);
  const uint8_t* high = at(row, chunk / 8 * 176 + 16);
  codes_k_nibbles(high + 32, sub, codes);
  for (int i = 0; i < 32; ++i) {
    codes[i] |= static_cast<uint8_t>(((high[i] >> sub) & 1) << 4);
  }
}

void codes_q6_k(const std::byte* row, int64_t chunk, uint8_t* codes) {
  const int half = static_cast<int>(chunk % 8) / 4;
  const int quarter = static_cast<int>(chunk % 4);
  const uint8_t* block = at(row, chunk / 8 * 210);
  const uint8_t* low = block + 64 * half + 32 * (quarter % 2);
  const uint8_t* high = block + 128 + 32 * half;
  const int low_shift = 4 * (quarter / 2);
  const int high_shift = 2 * quarter;
  for (int i = 0; i < 32; ++i) {
    codes[i] =
        static_cast<uint8_t>(((low[i] >> low_shift) & 15) | (((high[i] >> high_shift) & 3) << 4));
  }
}

// MLX: code i lies at bit i * bits of the row, read as one little-endian number.
template <int kBits>
void codes_mlx(const std::byte* row, int64_t chunk, uint8_t* codes) {
  const uint8_t* in = at(row, chunk * kBits * 4);
  if constexpr (kBits == 8) {
    std::memcpy(codes, in, 32);
  } else {
    // 8 codes are kBits bytes: never beyond the chunk.
    for (int eight = 0; eight < 4; ++eight, in += kBits, codes += 8) {
      uint64_t stream = 0;
      std::memcpy(&stream, in, kBits);
      for (int i = 0; i < 8; ++i) {
        codes[i] = static_cast<uint8_t>((stream >> (i * kBits)) & ((1 << kBits) - 1));
      }
    }
  }
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

ChunkCodes chunk_codes(TensorType type) {
  switch (type) {
    case TensorType::q4_0:
      return codes_q4<18, 2>;
    case TensorType::q4_1:
      return codes_q4<20, 4>;
    case TensorType::q5_0:
      return codes_q5<22, 2>;
    case TensorType::q5_1:
      return codes_q5<24, 4>;
    case TensorType::q8_0:
      return codes_q8_0;
    case TensorType::q2_k:
      return codes_q2_k;
    case TensorType::q3_k:
      return codes_q3_k;
    case TensorType::q4_k:
      return codes_q4_k;
    case TensorType::q5_k:
      return codes_q5_k;
    case TensorType::q6_k:
      return codes_q6_k;
    default:
      return nullptr;
  }
}

ChunkCodes mlx_chunk_codes(int bits) {
  switch (bits) {
    case 2:
      return codes_mlx<2>;
    case 3:
      return codes_mlx<3>;
    case 4:
      return codes_mlx<4>;
    case 5:
      return codes_mlx<5>;
    case 6:
      return codes_mlx<6>;
    default:
      return codes_mlx<8>;
  }
}

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
