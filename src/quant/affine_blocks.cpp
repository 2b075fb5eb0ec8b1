#include "quant/affine_blocks.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "weights/float_formats.h"
#include "weights/ggml_blocks.h"

namespace quince {
namespace {

float half(const std::byte* from) {
  return f16_to_f32(load_unaligned<uint16_t>(from));
}

const uint8_t* as_u8(const std::byte* from) {
  return reinterpret_cast<const uint8_t*>(from);
}

// 16 bytes: low nibbles are codes 0-15, high nibbles 16-31.
void split_nibbles(const uint8_t* bytes, uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = bytes[i] & 15;
    codes[i + 16] = bytes[i] >> 4;
  }
}

void add_fifth_bits(const std::byte* from, uint8_t* codes) {
  const uint32_t bits = load_unaligned<uint32_t>(from);
  for (int i = 0; i < 32; ++i) {
    codes[i] |= static_cast<uint8_t>((bits >> i & 1) << 4);
  }
}

void unpack_block_32(
    TensorType type, const std::byte* block, uint8_t* codes, float& scale, float& bias) {
  scale = half(block);
  switch (type) {
    case TensorType::q4_0:
      bias = -8.0f * scale;
      split_nibbles(as_u8(block + 2), codes);
      return;
    case TensorType::q4_1:
      bias = half(block + 2);
      split_nibbles(as_u8(block + 4), codes);
      return;
    case TensorType::q5_0:
      bias = -16.0f * scale;
      split_nibbles(as_u8(block + 6), codes);
      add_fifth_bits(block + 2, codes);
      return;
    case TensorType::q5_1:
      bias = half(block + 2);
      split_nibbles(as_u8(block + 8), codes);
      add_fifth_bits(block + 4, codes);
      return;
    case TensorType::q8_0:
      bias = -128.0f * scale;
      for (int i = 0; i < 32; ++i) {
        codes[i] = as_u8(block + 2)[i] ^ 0x80;  // i8 + 128
      }
      return;
    default:
      throw std::logic_error("[unpack_affine] not a 32-block type");
  }
}

// Q4_K and Q5_K: 8 groups of 32 in 4 pairs; the pair's 32 bytes hold the lower group in their low
// nibbles and the upper one in the high nibbles.
void unpack_super_block(
    bool five, const std::byte* block, uint8_t* codes, float* scales, float* biases) {
  const float d = half(block);
  const float dmin = half(block + 2);
  const uint8_t* sub = as_u8(block + 4);
  const uint8_t* high = as_u8(block + 16);
  const uint8_t* nibbles = high + (five ? 32 : 0);
  for (int group = 0; group < 8; ++group) {
    const ScaleMin factors = k_scale_min(sub, group);
    scales[group] = d * static_cast<float>(factors.scale);
    biases[group] = -(dmin * static_cast<float>(factors.min));
    const uint8_t* from = nibbles + 32 * (group / 2);
    const int shift = 4 * (group % 2);
    for (int i = 0; i < 32; ++i) {
      const int fifth = five ? high[i] >> group & 1 : 0;
      codes[32 * group + i] = static_cast<uint8_t>((from[i] >> shift & 15) | fifth << 4);
    }
  }
}

}  // namespace

int affine_bits(TensorType type) {
  switch (type) {
    case TensorType::q4_0:
    case TensorType::q4_1:
    case TensorType::q4_k:
      return 4;
    case TensorType::q5_0:
    case TensorType::q5_1:
    case TensorType::q5_k:
      return 5;
    case TensorType::q8_0:
      return 8;
    default:
      return 0;
  }
}

void unpack_affine(
    TensorType type,
    const std::byte* row,
    int64_t columns,
    uint8_t* codes,
    float* scales,
    float* biases) {
  const TensorTypeInfo& format = info(type);
  for (int64_t at = 0; at < columns; at += format.block, row += format.bytes) {
    const int64_t group = at / kAffineGroup;
    if (format.block == 32) {
      unpack_block_32(type, row, codes + at, scales[group], biases[group]);
    } else {
      unpack_super_block(type == TensorType::q5_k, row, codes + at, scales + group, biases + group);
    }
  }
}

void quantize_affine_8(
    const float* row,
    int64_t columns,
    float (*round)(float),
    uint8_t* codes,
    float* scales,
    float* biases) {
  for (int64_t at = 0; at < columns; at += kAffineGroup, ++scales, ++biases) {
    const auto [low, high] = std::minmax_element(row + at, row + at + kAffineGroup);
    *biases = round(*low);
    *scales = round((*high - *biases) / 255.0f);
    const float inverse = *scales == 0.0f ? 0.0f : 1.0f / *scales;
    for (int64_t i = at; i < at + kAffineGroup; ++i) {
      const float code = std::nearbyint((row[i] - *biases) * inverse);
      codes[i] = static_cast<uint8_t>(std::clamp(code, 0.0f, 255.0f));
    }
  }
}

void pack_codes(const uint8_t* codes, int64_t columns, int bits, uint32_t* words) {
  uint64_t buffer = 0;
  int held = 0;
  for (int64_t i = 0; i < columns; ++i) {
    buffer |= static_cast<uint64_t>(codes[i]) << held;
    held += bits;
    if (held >= 32) {
      *words++ = static_cast<uint32_t>(buffer);
      buffer >>= 32;
      held -= 32;
    }
  }
}

}  // namespace quince
