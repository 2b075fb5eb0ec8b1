#include "weights/ggml_blocks.h"

#include <bit>

#include "weights/float_formats.h"

// Equal to the bit on processors with fused multiply-add too.
#pragma clang fp contract(off)

namespace quince {

namespace {

float half_at(const uint8_t* at) {
  return f16_to_f32(load_unaligned<uint16_t>(at));
}

const uint8_t* bytes_of(const std::byte* data) {
  return reinterpret_cast<const uint8_t*>(data);
}

}  // namespace

void decode_q4_0(const std::byte* data, int64_t blocks, float* out) {
  const uint8_t* in = bytes_of(data);
  for (int64_t b = 0; b < blocks; ++b, in += 18, out += 32) {
    const float d = half_at(in);
    for (int i = 0; i < 16; ++i) {
      out[i] = d * static_cast<float>((in[2 + i] & 15) - 8);
      out[i + 16] = d * static_cast<float>((in[2 + i] >> 4) - 8);
    }
  }
}

void decode_q4_1(const std::byte* data, int64_t blocks, float* out) {
  const uint8_t* in = bytes_of(data);
  for (int64_t b = 0; b < blocks; ++b, in += 20, out += 32) {
    const float d = half_at(in);
    const float m = half_at(in + 2);
    for (int i = 0; i < 16; ++i) {
      out[i] = d * static_cast<float>(in[4 + i] & 15) + m;
      out[i + 16] = d * static_cast<float>(in[4 + i] >> 4) + m;
    }
  }
}

void decode_q5_0(const std::byte* data, int64_t blocks, float* out) {
  const uint8_t* in = bytes_of(data);
  for (int64_t b = 0; b < blocks; ++b, in += 22, out += 32) {
    const float d = half_at(in);
    const uint32_t high = load_unaligned<uint32_t>(in + 2);
    for (int i = 0; i < 16; ++i) {
      const int low_half = (in[6 + i] & 15) | (((high >> i) & 1) << 4);
      const int high_half = (in[6 + i] >> 4) | (((high >> (i + 16)) & 1) << 4);
      out[i] = d * static_cast<float>(low_half - 16);
      out[i + 16] = d * static_cast<float>(high_half - 16);
    }
  }
}

void decode_q5_1(const std::byte* data, int64_t blocks, float* out) {
  const uint8_t* in = bytes_of(data);
  for (int64_t b = 0; b < blocks; ++b, in += 24, out += 32) {
    const float d = half_at(in);
    const float m = half_at(in + 2);
    const uint32_t high = load_unaligned<uint32_t>(in + 4);
    for (int i = 0; i < 16; ++i) {
      const int low_half = (in[8 + i] & 15) | (((high >> i) & 1) << 4);
      const int high_half = (in[8 + i] >> 4) | (((high >> (i + 16)) & 1) << 4);
      out[i] = d * static_cast<float>(low_half) + m;
      out[i + 16] = d * static_cast<float>(high_half) + m;
    }
  }
}

void decode_q8_0(const std::byte* data, int64_t blocks, float* out) {
  const uint8_t* in = bytes_of(data);
  for (int64_t b = 0; b < blocks; ++b, in += 34, out += 32) {
    const float d = half_at(in);
    for (int i = 0; i < 32; ++i) {
      out[i] = d * static_cast<float>(static_cast<int8_t>(in[2 + i]));
    }
  }
}

// The 256 two-bit codes of Q2_K, Q3_K and TQ2_0 come in two halves of 128; in each half, byte i of
// 32 holds elements i, i + 32, i + 64 and i + 96.
void decode_q2_k(const std::byte* data, int64_t blocks, float* out) {
  const uint8_t* in = bytes_of(data);
  for (int64_t b = 0; b < blocks; ++b, in += 84, out += 256) {
    const uint8_t* codes = in + 16;
    const float d = half_at(in + 80);
    const float dmin = half_at(in + 82);
    for (int group = 0; group < 16; ++group) {
      const float scale = d * static_cast<float>(in[group] & 15);
      const float min = dmin * static_cast<float>(in[group] >> 4);
      const uint8_t* q = codes + 32 * (group / 8) + 16 * (group % 2);
      const int shift = 2 * (group / 2 % 4);
      for (int i = 0; i < 16; ++i) {
        out[16 * group + i] = scale * static_cast<float>((q[i] >> shift) & 3) - min;
      }
    }
  }
}

void decode_q3_k(const std::byte* data, int64_t blocks, float* out) {
  const uint8_t* in = bytes_of(data);
  for (int64_t b = 0; b < blocks; ++b, in += 110, out += 256) {
    const uint8_t* codes = in + 32;
    const uint8_t* scales = in + 96;
    const float d = half_at(in + 108);
    for (int group = 0; group < 16; ++group) {
      const float scale = d * static_cast<float>(q3_k_scale(scales, group));
      const uint8_t* q = codes + 32 * (group / 8) + 16 * (group % 2);
      const uint8_t* high = in + 16 * (group % 2);  // bit group / 2 of each byte
      const int shift = 2 * (group / 2 % 4);
      for (int i = 0; i < 16; ++i) {
        const int code = ((q[i] >> shift) & 3) | (((high[i] >> (group / 2)) & 1) << 2);
        out[16 * group + i] = scale * static_cast<float>(code - 4);
      }
    }
  }
}

// Q4_K, Q5_K: byte i of each 32 holds element i of two neighbouring groups of 32.
void decode_q4_k(const std::byte* data, int64_t blocks, float* out) {
  const uint8_t* in = bytes_of(data);
  for (int64_t b = 0; b < blocks; ++b, in += 144, out += 256) {
    const float d = half_at(in);
    const float dmin = half_at(in + 2);
    for (int group = 0; group < 8; ++group) {
      const ScaleMin s = k_scale_min(in + 4, group);
      const float scale = d * static_cast<float>(s.scale);
      const float min = dmin * static_cast<float>(s.min);
      const uint8_t* q = in + 16 + 32 * (group / 2);
      const int shift = 4 * (group % 2);
      for (int i = 0; i < 32; ++i) {
        out[32 * group + i] = scale * static_cast<float>((q[i] >> shift) & 15) - min;
      }
    }
  }
}

void decode_q5_k(const std::byte* data, int64_t blocks, float* out) {
  const uint8_t* in = bytes_of(data);
  for (int64_t b = 0; b < blocks; ++b, in += 176, out += 256) {
    const float d = half_at(in);
    const float dmin = half_at(in + 2);
    const uint8_t* high = in + 16;  // bit `group` of byte i
    for (int group = 0; group < 8; ++group) {
      const ScaleMin s = k_scale_min(in + 4, group);
      const float scale = d * static_cast<float>(s.scale);
      const float min = dmin * static_cast<float>(s.min);
      const uint8_t* q = in + 48 + 32 * (group / 2);
      const int shift = 4 * (group % 2);
      for (int i = 0; i < 32; ++i) {
        const int code = ((q[i] >> shift) & 15) | (((high[i] >> group) & 1) << 4);
        out[32 * group + i] = scale * static_cast<float>(code) - min;
      }
    }
  }
}

// Q6_K: two halves of 128 elements. In each, low nibbles of 64 bytes are elements 0-63 and high
// ones 64-127; byte i of 32 in qh holds the upper bits of elements i, i + 32, i + 64, i + 96.
void decode_q6_k(const std::byte* data, int64_t blocks, float* out) {
  const uint8_t* in = bytes_of(data);
  for (int64_t b = 0; b < blocks; ++b, in += 210, out += 256) {
    const auto* scales = reinterpret_cast<const int8_t*>(in + 192);
    const float d = half_at(in + 208);
    for (int group = 0; group < 16; ++group) {
      const float scale = d * static_cast<float>(scales[group]);
      const int half = group / 8;
      const int quarter = group / 2 % 4;  // 32 elements each
      const uint8_t* low = in + 64 * half + 32 * (quarter % 2) + 16 * (group % 2);
      const uint8_t* high = in + 128 + 32 * half + 16 * (group % 2);
      const int low_shift = 4 * (quarter / 2);
      const int high_shift = 2 * quarter;
      for (int i = 0; i < 16; ++i) {
        const int code = ((low[i] >> low_shift) & 15) | (((high[i] >> high_shift) & 3) << 4);
        out[16 * group + i] = scale * static_cast<float>(code - 32);
      }
    }
  }
}

namespace {

// Digit `digit` (0: most significant) of a byte that holds ceil(256 n / 243) for a base-3 number n
// below 243: multiplying by 3^digit modulo 256 moves it to the top, the top digit is (x * 3) >> 8.
float trit(uint8_t byte, int digit) {
  constexpr uint8_t kPowers[5] = {1, 3, 9, 27, 81};
  const auto moved = static_cast<uint8_t>(byte * kPowers[digit]);
  return static_cast<float>(((moved * 3) >> 8) - 1);
}

}  // namespace

void decode_tq1_0(const std::byte* data, int64_t blocks, float* out) {
  const uint8_t* in = bytes_of(data);
  for (int64_t b = 0; b < blocks; ++b, in += 54) {
    const float d = half_at(in + 52);
    // 32 bytes of 5 digits, 16 bytes of 5 digits, 4 bytes of 4 digits; digit-major in each part.
    struct Part {
      int begin, size, digits;
    };
    for (const Part part : {Part{0, 32, 5}, Part{32, 16, 5}, Part{48, 4, 4}}) {
      for (int digit = 0; digit < part.digits; ++digit) {
        for (int i = 0; i < part.size; ++i) {
          *out++ = d * trit(in[part.begin + i], digit);
        }
      }
    }
  }
}

void decode_tq2_0(const std::byte* data, int64_t blocks, float* out) {
  const uint8_t* in = bytes_of(data);
  for (int64_t b = 0; b < blocks; ++b, in += 66, out += 256) {
    const float d = half_at(in + 64);
    for (int group = 0; group < 8; ++group) {
      const uint8_t* q = in + 32 * (group / 4);
      const int shift = 2 * (group % 4);
      for (int i = 0; i < 32; ++i) {
        out[32 * group + i] = d * static_cast<float>(((q[i] >> shift) & 3) - 1);
      }
    }
  }
}

void decode_mxfp4(const std::byte* data, int64_t blocks, float* out) {
  // Twice the E2M1 values, so that they are integers; the scale is halved instead.
  static constexpr int8_t kDoubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  const uint8_t* in = bytes_of(data);
  for (int64_t b = 0; b < blocks; ++b, in += 17, out += 32) {
    const uint32_t exponent = in[0];
    // 2^(exponent - 128); the two smallest are subnormal.
    const float d =
        std::bit_cast<float>(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
    for (int i = 0; i < 16; ++i) {
      out[i] = d * static_cast<float>(kDoubled[in[1 + i] & 15]);
      out[i + 16] = d * static_cast<float>(kDoubled[in[1 + i] >> 4]);
    }
  }
}

}  // namespace quince
