// GGML's IQ formats: vector quantization. A code selects a short vector of magnitudes from a fixed
// book, sign bits are stored apart. All but IQ4_NL have 256 elements a block.
//
//   name     bytes  layout (in order)
//   IQ2_XXS    66   d, per 32 elements: 4 book indices (8 bit), u32 of four 7-bit signs and a 4-bit
//   scale IQ2_XS     74   d, 32 u16 of 9-bit index and 7-bit signs, 8 bytes of two 4-bit scales (16
//   elements each) IQ2_S      82   d, 32 index bytes, 32 sign bytes, 8 bytes of index bits 8-9, 8
//   bytes of scales IQ3_XXS    98   d, 64 index bytes (4 elements each), 8 u32 of signs and scale
//   as in IQ2_XXS IQ3_S     110   d, 64 index bytes, 8 bytes of index bit 8, 32 sign bytes, 4 bytes
//   of scales (32 elements) IQ1_S      50   d, 32 index bytes, 8 u16: four 3-bit upper index bits,
//   3-bit scale, sign of the shift IQ1_M      56   32 index bytes, 16 bytes of (3-bit upper index,
//   shift sign) pairs, 4 u16 of four 3-bit
//                   scales (16 elements each); their top nibbles together are d
//   IQ4_NL     18   d, 16 bytes of nibbles into 16 levels (32 elements)
//   IQ4_XS    136   d, u16 upper scale bits, 4 bytes lower scale nibbles, 128 bytes of nibbles
//
// A 7-bit sign field stands for 8 signs: the eighth makes their number even.
#include <bit>

#include "weights/float_formats.h"
#include "weights/ggml_blocks.h"
#include "weights/ggml_iq_tables.h"

#pragma clang fp contract(off)

namespace quince {

namespace {

constexpr float kIq2Levels[4] = {8, 25, 43, 0};
constexpr float kIq3XxsLevels[8] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr float kIq3SLevels[8] = {1, 3, 5, 7, 9, 11, 13, 15};
constexpr float kIq1Shift = 0.125f;
constexpr int8_t kIq4Levels[16] = {
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

float half_at(const uint8_t* at) {
  return f16_to_f32(load_unaligned<uint16_t>(at));
}

const uint8_t* bytes_of(const std::byte* data) {
  return reinterpret_cast<const uint8_t*>(data);
}

uint8_t even_signs(uint32_t seven_bits) {
  const uint32_t s = seven_bits & 127;
  return static_cast<uint8_t>(s | (static_cast<uint32_t>(std::popcount(s) & 1) << 7));
}

void put8(uint16_t word, uint8_t signs, float scale, float* out) {
  for (int i = 0; i < 8; ++i) {
    const float value = scale * kIq2Levels[(word >> (2 * i)) & 3];
    out[i] = (signs >> i) & 1 ? -value : value;
  }
}

void put4(uint16_t word, int signs, float scale, const float* levels, float* out) {
  for (int i = 0; i < 4; ++i) {
    const float value = scale * levels[(word >> (3 * i)) & 7];
    out[i] = (signs >> i) & 1 ? -value : value;
  }
}

void put_shifted8(uint16_t word, float shift, float scale, float* out) {
  for (int i = 0; i < 8; ++i) {
    out[i] = scale * (static_cast<float>(static_cast<int>((word >> (2 * i)) & 3) - 1) + shift);
  }
}

}  // namespace

void decode_iq2_xxs(const std::byte* data, int64_t blocks, float* out) {
  const uint8_t* in = bytes_of(data);
  for (int64_t b = 0; b < blocks; ++b, in += 66, out += 256) {
    const float d = half_at(in);
    for (int group = 0; group < 8; ++group) {
      const uint8_t* codes = in + 2 + 8 * group;
      const auto packed = load_unaligned<uint32_t>(codes + 4);
      const float scale = d * (0.5f + static_cast<float>(packed >> 28)) * 0.25f;
      for (int i = 0; i < 4; ++i) {
        put8(kIq2XxsBook[codes[i]], even_signs(packed >> (7 * i)), scale, out + 32 * group + 8 * i);
      }
    }
  }
}

void decode_iq2_xs(const std::byte* data, int64_t blocks, float* out) {
  const uint8_t* in = bytes_of(data);
  for (int64_t b = 0; b < blocks; ++b, in += 74, out += 256) {
    const float d = half_at(in);
    for (int i = 0; i < 32; ++i) {
      const auto code = load_unaligned<uint16_t>(in + 2 + 2 * i);
      const int scale_code = (in[66 + i / 4] >> (4 * (i / 2 % 2))) & 15;
      const float scale = d * (0.5f + static_cast<float>(scale_code)) * 0.25f;
      put8(kIq2XsBook[code & 511], even_signs(code >> 9), scale, out + 8 * i);
    }
  }
}

void decode_iq2_s(const std::byte* data, int64_t blocks, float* out) {
  const uint8_t* in = bytes_of(data);
  for (int64_t b = 0; b < blocks; ++b, in += 82, out += 256) {
    const float d = half_at(in);
    const uint8_t* signs = in + 34;
    const uint8_t* high = in + 66;
    const uint8_t* scales = in + 74;
    for (int i = 0; i < 32; ++i) {
      const int index = in[2 + i] | (((high[i / 4] >> (2 * (i % 4))) & 3) << 8);
      const int scale_code = (scales[i / 4] >> (4 * (i / 2 % 2))) & 15;
      const float scale = d * (0.5f + static_cast<float>(scale_code)) * 0.25f;
      put8(kIq2SBook[index], signs[i], scale, out + 8 * i);
    }
  }
}

void decode_iq3_xxs(const std::byte* data, int64_t blocks, float* out) {
  const uint8_t* in = bytes_of(data);
  for (int64_t b = 0; b < blocks; ++b, in += 98, out += 256) {
    const float d = half_at(in);
    for (int group = 0; group < 8; ++group) {
      const uint8_t* codes = in + 2 + 8 * group;
      const auto packed = load_unaligned<uint32_t>(in + 66 + 4 * group);
      const float scale = d * (0.5f + static_cast<float>(packed >> 28)) * 0.5f;
      for (int i = 0; i < 8; ++i) {
        const int signs = even_signs(packed >> (7 * (i / 2))) >> (4 * (i % 2));
        put4(kIq3XxsBook[codes[i]], signs, scale, kIq3XxsLevels, out + 32 * group + 4 * i);
      }
    }
  }
}

void decode_iq3_s(const std::byte* data, int64_t blocks, float* out) {
  const uint8_t* in = bytes_of(data);
  for (int64_t b = 0; b < blocks; ++b, in += 110, out += 256) {
    const float d = half_at(in);
    const uint8_t* high = in + 66;
    const uint8_t* signs = in + 74;
    const uint8_t* scales = in + 106;
    for (int i = 0; i < 64; ++i) {
      const int index = in[2 + i] | (((high[i / 8] >> (i % 8)) & 1) << 8);
      const int scale_code = (scales[i / 16] >> (4 * (i / 8 % 2))) & 15;
      const float scale = d * static_cast<float>(1 + 2 * scale_code);
      put4(kIq3SBook[index], signs[i / 2] >> (4 * (i % 2)), scale, kIq3SLevels, out + 4 * i);
    }
  }
}

void decode_iq1_s(const std::byte* data, int64_t blocks, float* out) {
  const uint8_t* in = bytes_of(data);
  for (int64_t b = 0; b < blocks; ++b, in += 50, out += 256) {
    const float d = half_at(in);
    for (int i = 0; i < 32; ++i) {
      const auto extra = load_unaligned<uint16_t>(in + 34 + 2 * (i / 4));
      const int index = in[2 + i] | (((extra >> (3 * (i % 4))) & 7) << 8);
      const float scale = d * static_cast<float>(2 * ((extra >> 12) & 7) + 1);
      put_shifted8(kIq1Book[index], extra & 0x8000 ? -kIq1Shift : kIq1Shift, scale, out + 8 * i);
    }
  }
}

void decode_iq1_m(const std::byte* data, int64_t blocks, float* out) {
  const uint8_t* in = bytes_of(data);
  for (int64_t b = 0; b < blocks; ++b, in += 56, out += 256) {
    uint16_t scales[4];
    std::memcpy(scales, in + 48, sizeof(scales));
    const auto half = static_cast<uint16_t>(
        (scales[0] >> 12) | (scales[1] >> 12 << 4) | (scales[2] >> 12 << 8) |
        (scales[3] >> 12 << 12));
    const float d = f16_to_f32(half);
    for (int i = 0; i < 32; ++i) {
      const int extra = in[32 + i / 2] >> (4 * (i % 2));
      const int index = in[i] | ((extra & 7) << 8);
      const int scale_code = (scales[i / 8] >> (3 * (i / 2 % 4))) & 7;
      const float scale = d * static_cast<float>(2 * scale_code + 1);
      put_shifted8(kIq1Book[index], extra & 8 ? -kIq1Shift : kIq1Shift, scale, out + 8 * i);
    }
  }
}

void decode_iq4_nl(const std::byte* data, int64_t blocks, float* out) {
  const uint8_t* in = bytes_of(data);
  for (int64_t b = 0; b < blocks; ++b, in += 18, out += 32) {
    const float d = half_at(in);
    for (int i = 0; i < 16; ++i) {
      out[i] = d * static_cast<float>(kIq4Levels[in[2 + i] & 15]);
      out[i + 16] = d * static_cast<float>(kIq4Levels[in[2 + i] >> 4]);
    }
  }
}

void decode_iq4_xs(const std::byte* data, int64_t blocks, float* out) {
  const uint8_t* in = bytes_of(data);
  for (int64_t b = 0; b < blocks; ++b, in += 136, out += 256) {
    const float d = half_at(in);
    const auto high = load_unaligned<uint16_t>(in + 2);
    for (int group = 0; group < 8; ++group) {
      const int low = (in[4 + group / 2] >> (4 * (group % 2))) & 15;
      const int code = low | (((high >> (2 * group)) & 3) << 4);
      const float scale = d * static_cast<float>(code - 32);
      const uint8_t* q = in + 8 + 16 * group;
      for (int i = 0; i < 16; ++i) {
        out[32 * group + i] = scale * static_cast<float>(kIq4Levels[q[i] & 15]);
        out[32 * group + 16 + i] = scale * static_cast<float>(kIq4Levels[q[i] >> 4]);
      }
    }
  }
}

}  // namespace quince
