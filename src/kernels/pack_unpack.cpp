#include "kernels/pack_unpack.h"

#include <cstring>

#include "weights/float_formats.h"

// Equal to the bit on processors with fused multiply-add too.
#pragma clang fp contract(off)

namespace quince::kernels {

namespace {

// Calls plane(shift of the plane's bits in a code, bits of the plane, its first byte in the chunk).
template <typename Plane>
void for_each_plane(int bits, Plane plane) {
  switch (bits) {
    case 2:
      return plane(0, 2, 0);
    case 3:
      plane(0, 2, 0);
      return plane(2, 1, 2 * kVector);
    case 4:
      return plane(0, 4, 0);
    case 5:
      plane(0, 4, 0);
      return plane(4, 1, 4 * kVector);
    case 6:
      plane(0, 4, 0);
      return plane(4, 2, 4 * kVector);
    default:
      return plane(0, 8, 0);
  }
}

float half_at(const std::byte* at) {
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  return f16_to_f32(bits);
}

int byte_at(const std::byte* at) {
  return static_cast<int>(*at);
}

// Scales of one group, or one sub-group of a super block, for all 16 rows.
void expand_direct(
    const PackedMatrix::Layout& w, const std::byte* group, float* scale, float* bias) {
  const size_t element = w.plan == ScalePlan::direct_f32 ? 4 : 2;
  const auto value = [&](const std::byte* from) {
    if (w.plan == ScalePlan::direct_f16) {
      return half_at(from);
    }
    if (w.plan == ScalePlan::direct_bf16) {
      uint16_t bits;
      std::memcpy(&bits, from, 2);
      return bf16_to_f32(bits);
    }
    float f;
    std::memcpy(&f, from, 4);
    return f;
  };
  for (int r = 0; r < kBlockRows; ++r) {
    scale[r] = value(group + r * element);
    bias[r] = w.format.biased ? value(group + (kBlockRows + r) * element) : 0.0f;
  }
}

void expand_k_6_6(const std::byte* unit, int sub, float* scale, float* bias) {
  const std::byte* low = unit + 64 + 16 * sub;
  const std::byte* high = unit + 192 + 16 * (sub % 4);
  const int shift = sub / 4 * 4;
  for (int r = 0; r < kBlockRows; ++r) {
    const int top = byte_at(high + r) >> shift;
    const int s = (byte_at(low + r) & 15) | ((top & 3) << 4);
    const int m = (byte_at(low + r) >> 4) | (((top >> 2) & 3) << 4);
    scale[r] = half_at(unit + 2 * r) * static_cast<float>(s);
    bias[r] = -(half_at(unit + 32 + 2 * r) * static_cast<float>(m));
  }
}

void expand_k_8(const std::byte* unit, int sub, float* scale, float* bias) {
  for (int r = 0; r < kBlockRows; ++r) {
    const auto s = static_cast<int8_t>(byte_at(unit + 16 * sub + r));
    scale[r] = half_at(unit + 256 + 2 * r) * static_cast<float>(s);
    bias[r] = 0.0f;
  }
}

void expand_k_6(const std::byte* unit, int sub, float* scale, float* bias) {
  const int shift = sub / 4 * 2;
  for (int r = 0; r < kBlockRows; ++r) {
    const int low = (byte_at(unit + 16 * (sub % 8) + r) >> (sub / 8 * 4)) & 15;
    const int high = (byte_at(unit + 128 + 16 * (sub % 4) + r) >> shift) & 3;
    scale[r] = half_at(unit + 192 + 2 * r) * static_cast<float>((low | high << 4) - 32);
    bias[r] = 0.0f;
  }
}

void expand_k_4_4(const std::byte* unit, int sub, float* scale, float* bias) {
  for (int r = 0; r < kBlockRows; ++r) {
    const int both = byte_at(unit + 16 * sub + r);
    scale[r] = half_at(unit + 256 + 2 * r) * static_cast<float>(both & 15);
    bias[r] = -(half_at(unit + 288 + 2 * r) * static_cast<float>(both >> 4));
  }
}

}  // namespace

void unpack_chunk(int bits, const std::byte* chunk, uint8_t* out) {
  std::memset(out, 0, kSteps * kVector);
  for_each_plane(bits, [&](int shift, int width, int offset) {
    const int per_byte = 8 / width;
    const int mask = (1 << width) - 1;
    for (int step = 0; step < kSteps; ++step) {
      // One bit a step: bit `step` of the single vector.
      const std::byte* from = chunk + offset + step / per_byte * kVector;
      const int down = step % per_byte * width;
      uint8_t* to = out + step * kVector;
      for (int i = 0; i < kVector; ++i) {
        to[i] |= static_cast<uint8_t>(((static_cast<int>(from[i]) >> down) & mask) << shift);
      }
    }
  });
}

void unpack_lane(int bits, const std::byte* chunk, int lane, uint8_t* codes) {
  uint32_t out[kSteps] = {};  // 4 codes each
  for_each_plane(bits, [&](int shift, int width, int offset) {
    const int per_byte = 8 / width;
    const uint32_t mask = 0x01010101u * ((1u << width) - 1);
    for (int step = 0; step < kSteps; ++step) {
      uint32_t word;
      std::memcpy(&word, chunk + offset + step / per_byte * kVector + 4 * lane, 4);
      out[step] |= ((word >> (step % per_byte * width)) & mask) << shift;
    }
  });
  std::memcpy(codes, out, sizeof(out));
}

void expand_scales(
    const PackedMatrix::Layout& w,
    const std::byte* block,
    int64_t first,
    int64_t count,
    bool fold_zero,
    float* scale,
    float* bias) {
  const std::byte* scales = block + w.scale_offset;
  const size_t unit = scale_unit_bytes(w.plan, w.format.biased);
  const int halves = scales_per_chunk(w);
  for (int64_t c = first; c < first + count; ++c) {
    for (int half = 0; half < halves; ++half, scale += kBlockRows, bias += kBlockRows) {
      const std::byte* super = scales + static_cast<size_t>(c / 8) * unit;
      const int sub = static_cast<int>(c % 8) * halves + half;
      switch (w.plan) {
        case ScalePlan::k_6_6:
          expand_k_6_6(super, sub, scale, bias);
          break;
        case ScalePlan::k_8:
          expand_k_8(super, sub, scale, bias);
          break;
        case ScalePlan::k_6:
          expand_k_6(super, sub, scale, bias);
          break;
        case ScalePlan::k_4_4:
          expand_k_4_4(super, sub, scale, bias);
          break;
        default:
          expand_direct(
              w, scales + static_cast<size_t>(c * kChunk / w.format.group) * unit, scale, bias);
      }
      if (fold_zero && !w.format.biased) {
        for (int r = 0; r < kBlockRows; ++r) {
          bias[r] = -static_cast<float>(w.zero) * scale[r];
        }
      }
    }
  }
}

}  // namespace quince::kernels
