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

// The 32 codes of one row (0-15) of a chunk.
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

struct ScaleBias {
  float scale;
  float bias;
};

float direct_value(ScalePlan plan, const std::byte* at) {
  if (plan == ScalePlan::direct_f16) {
    return half_at(at);
  }
  if (plan == ScalePlan::direct_bf16) {
    uint16_t bits;
    std::memcpy(&bits, at, 2);
    return bf16_to_f32(bits);
  }
  float value;
  std::memcpy(&value, at, 4);
  return value;
}

ScaleBias direct_scale(const PackedMatrix::Layout& w, const std::byte* group, int row) {
  const int element = w.plan == ScalePlan::direct_f32 ? 4 : 2;
  const float scale = direct_value(w.plan, group + row * element);
  const float bias =
      w.format.biased ? direct_value(w.plan, group + (kBlockRows + row) * element) : 0.0f;
  return {scale, bias};
}

// Sub-group `sub` of a super block, see packed_layout.h.
ScaleBias sub_scale(ScalePlan plan, const std::byte* unit, int sub, int row) {
  const std::byte* at = unit + row;
  const std::byte* half = unit + 2 * row;
  switch (plan) {
    case ScalePlan::k_6_6: {
      const int low = byte_at(at + 64 + 16 * sub);
      const int top = byte_at(at + 192 + 16 * (sub % 4)) >> (sub / 4 * 4);
      const int s = (low & 15) | ((top & 3) << 4);
      const int m = (low >> 4) | (((top >> 2) & 3) << 4);
      return {half_at(half) * static_cast<float>(s), -(half_at(half + 32) * static_cast<float>(m))};
    }
    case ScalePlan::k_8: {
      const auto s = static_cast<int8_t>(byte_at(at + 16 * sub));
      return {half_at(half + 256) * static_cast<float>(s), 0.0f};
    }
    case ScalePlan::k_6: {
      const int low = (byte_at(at + 16 * (sub % 8)) >> (sub / 8 * 4)) & 15;
      const int high = (byte_at(at + 128 + 16 * (sub % 4)) >> (sub / 4 * 2)) & 3;
      return {half_at(half + 192) * static_cast<float>((low | high << 4) - 32), 0.0f};
    }
    default: {  // k_4_4
      const int both = byte_at(at + 16 * sub);
      return {
          half_at(half + 256) * static_cast<float>(both & 15),
          -(half_at(half + 288) * static_cast<float>(both >> 4))};
    }
  }
}

ScaleBias row_scale(
    const PackedMatrix::Layout& w, const std::byte* block, int64_t chunk, int half, int row) {
  const std::byte* scales = block + w.scale_offset;
  const auto unit = static_cast<int64_t>(scale_unit_bytes(w.plan, w.format.biased));
  if (w.format.kind == PackedKind::two_level) {
    const int sub = static_cast<int>(chunk % 8) * scales_per_chunk(w) + half;
    return sub_scale(w.plan, scales + chunk / 8 * unit, sub, row);
  }
  return direct_scale(w, scales + chunk * kChunk / w.format.group * unit, row);
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

void expand_scales(
    const PackedMatrix::Layout& w,
    const std::byte* block,
    int64_t chunk,
    float* scale,
    float* bias) {
  for (int half = 0; half < scales_per_chunk(w); ++half) {
    for (int r = 0; r < kBlockRows; ++r, ++scale, ++bias) {
      const ScaleBias value = row_scale(w, block, chunk, half, r);
      *scale = value.scale;
      *bias = w.format.biased ? value.bias : -static_cast<float>(w.zero) * value.scale;
    }
  }
}

void unpack_floats(
    const PackedMatrix::Layout& w, const std::byte* block, int64_t chunk, int row, float* out) {
  uint8_t codes[kChunk];
  unpack_lane(w.format.bits, block + static_cast<size_t>(chunk) * w.chunk_bytes(), row, codes);
  const int halves = scales_per_chunk(w);
  const int width = kChunk / halves;
  for (int half = 0; half < halves; ++half) {
    const ScaleBias value = row_scale(w, block, chunk, half, row);
    for (int i = half * width; i < (half + 1) * width; ++i) {
      const float product = value.scale * static_cast<float>(codes[i] - w.zero);
      out[i] = w.format.biased ? product + value.bias : product;
    }
  }
}

}  // namespace quince::kernels
