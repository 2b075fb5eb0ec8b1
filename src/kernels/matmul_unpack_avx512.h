// Codes and scales of a packed block in AVX-512 registers. Everything has internal linkage: files
// with different instruction sets include this, and the linker must not mix their copies.
#pragma once

#include <immintrin.h>

#include "kernels/matmul_ahead.h"
#include "kernels/matmul_kernels.h"

namespace quince::kernels {
namespace {

inline __m512i load512(const void* at) {
  return _mm512_load_si512(at);
}

// (v >> shift) & mask in every byte, for masks that stay inside the byte after the shift.
template <int kShift>
inline __m512i bits_down(__m512i v, __m512i mask) {
  if constexpr (kShift == 0) {
    return _mm512_and_si512(v, mask);
  } else {
    return _mm512_and_si512(_mm512_srli_epi16(v, kShift), mask);
  }
}

// low | ((v moved so that its bits from kFrom land at kTo) & mask).
template <int kFrom, int kTo>
inline __m512i or_bits(__m512i low, __m512i v, __m512i mask) {
  __m512i moved = v;
  if constexpr (kFrom > kTo) {
    moved = _mm512_srli_epi16(v, kFrom - kTo);
  } else if constexpr (kFrom < kTo) {
    moved = _mm512_slli_epi16(v, kTo - kFrom);
  }
  return _mm512_ternarylogic_epi64(low, moved, mask, 0xf8);  // a | (b & c)
}

// The 8 step vectors of a chunk as bytes, codes unsigned.
template <int kBits>
inline void load_codes(const std::byte* chunk, __m512i (&v)[kSteps]) {
  const auto vector = [chunk](int i) { return load512(chunk + i * kVector); };
  const __m512i nibble = _mm512_set1_epi8(0x0f);
  const __m512i pair = _mm512_set1_epi8(0x03);
  if constexpr (kBits == 8) {
    for (int s = 0; s < kSteps; ++s) {
      v[s] = vector(s);
    }
  } else if constexpr (kBits >= 4) {
    for (int i = 0; i < 4; ++i) {
      const __m512i both = vector(i);
      v[2 * i] = bits_down<0>(both, nibble);
      v[2 * i + 1] = bits_down<4>(both, nibble);
    }
  } else {
    for (int i = 0; i < 2; ++i) {
      const __m512i four = vector(i);
      v[4 * i] = bits_down<0>(four, pair);
      v[4 * i + 1] = bits_down<2>(four, pair);
      v[4 * i + 2] = bits_down<4>(four, pair);
      v[4 * i + 3] = bits_down<6>(four, pair);
    }
  }
  if constexpr (kBits == 5 || kBits == 3) {
    constexpr int kTo = kBits - 1;
    const __m512i high = vector(kBits - 1);
    const __m512i mask = _mm512_set1_epi8(1 << kTo);
    v[0] = or_bits<0, kTo>(v[0], high, mask);
    v[1] = or_bits<1, kTo>(v[1], high, mask);
    v[2] = or_bits<2, kTo>(v[2], high, mask);
    v[3] = or_bits<3, kTo>(v[3], high, mask);
    v[4] = or_bits<4, kTo>(v[4], high, mask);
    v[5] = or_bits<5, kTo>(v[5], high, mask);
    v[6] = or_bits<6, kTo>(v[6], high, mask);
    v[7] = or_bits<7, kTo>(v[7], high, mask);
  }
  if constexpr (kBits == 6) {
    const __m512i mask = _mm512_set1_epi8(0x30);
    for (int i = 0; i < 2; ++i) {
      const __m512i high = vector(4 + i);
      v[4 * i] = or_bits<0, 4>(v[4 * i], high, mask);
      v[4 * i + 1] = or_bits<2, 4>(v[4 * i + 1], high, mask);
      v[4 * i + 2] = or_bits<4, 4>(v[4 * i + 2], high, mask);
      v[4 * i + 3] = or_bits<6, 4>(v[4 * i + 3], high, mask);
    }
  }
}

inline __m512 halves_at(const std::byte* at) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
}

inline __m512 bf16_at(const std::byte* at) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at))), 16));
}

inline __m128i bytes16(const std::byte* at) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
}

inline __m512 unsigned_at(const uint8_t* at) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(at))));
}

// Chunks whose scales are expanded at a time: one super block.
constexpr int kWindow = kSuperBlock / kChunk;

// Scales and biases of up to kWindow chunks, [chunk][half][16], so that w = scale * code + bias.
struct ScaleWindow {
  alignas(64) float scale[kWindow * 2 * kBlockRows];
  alignas(64) float bias[kWindow * 2 * kBlockRows];
};

template <ScalePlan kPlan>
inline __m512 direct_at(const std::byte* at) {
  if constexpr (kPlan == ScalePlan::direct_f16) {
    return halves_at(at);
  } else if constexpr (kPlan == ScalePlan::direct_bf16) {
    return bf16_at(at);
  } else {
    return _mm512_loadu_ps(at);
  }
}

template <ScalePlan kPlan>
inline void expand_direct(
    const PackedMatrix::Layout& w,
    const std::byte* scales,
    int64_t first,
    int count,
    ScaleWindow& out) {
  constexpr int kBytes = kPlan == ScalePlan::direct_f32 ? 64 : 32;              // of 16
  const int shift = w.format.group == 32 ? 0 : (w.format.group == 64 ? 1 : 2);  // chunks a group
  const int unit = w.format.biased ? 2 * kBytes : kBytes;
  const __m512 minus_zero = _mm512_set1_ps(static_cast<float>(-w.zero));
  for (int c = 0; c < count; ++c) {
    const std::byte* at = scales + ((first + c) >> shift) * unit;
    const __m512 scale = direct_at<kPlan>(at);
    _mm512_store_ps(out.scale + c * kBlockRows, scale);
    const __m512 bias =
        w.format.biased ? direct_at<kPlan>(at + kBytes) : _mm512_mul_ps(scale, minus_zero);
    _mm512_store_ps(out.bias + c * kBlockRows, bias);
  }
}

inline void expand_k_6_6(const std::byte* unit, int count, ScaleWindow& out) {
  alignas(64) uint8_t scales[128];
  alignas(64) uint8_t mins[128];
  const __m512i nibble = _mm512_set1_epi8(0x0f);
  const __m512i upper = _mm512_set1_epi8(0x30);
  const __m512i high = _mm512_loadu_si512(unit + 192);
  const __m512i low0 = _mm512_loadu_si512(unit + 64);
  const __m512i low1 = _mm512_loadu_si512(unit + 128);
  _mm512_store_si512(scales, or_bits<0, 4>(bits_down<0>(low0, nibble), high, upper));
  _mm512_store_si512(mins, or_bits<2, 4>(bits_down<4>(low0, nibble), high, upper));
  _mm512_store_si512(scales + 64, or_bits<4, 4>(bits_down<0>(low1, nibble), high, upper));
  _mm512_store_si512(mins + 64, or_bits<6, 4>(bits_down<4>(low1, nibble), high, upper));
  const __m512 d = halves_at(unit);
  const __m512 minus_dmin = _mm512_sub_ps(_mm512_setzero_ps(), halves_at(unit + 32));
  for (int c = 0; c < count; ++c) {
    _mm512_store_ps(
        out.scale + c * kBlockRows, _mm512_mul_ps(d, unsigned_at(scales + c * kBlockRows)));
    _mm512_store_ps(
        out.bias + c * kBlockRows, _mm512_mul_ps(minus_dmin, unsigned_at(mins + c * kBlockRows)));
  }
}

inline void expand_k_8(const std::byte* unit, int count, int zero, ScaleWindow& out) {
  const __m512 d = halves_at(unit + 256);
  const __m512 minus_zero = _mm512_set1_ps(static_cast<float>(-zero));
  for (int g = 0; g < 2 * count; ++g) {
    const __m512 sub = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes16(unit + 16 * g)));
    const __m512 scale = _mm512_mul_ps(d, sub);
    _mm512_store_ps(out.scale + g * kBlockRows, scale);
    _mm512_store_ps(out.bias + g * kBlockRows, _mm512_mul_ps(scale, minus_zero));
  }
}

inline void expand_k_6(const std::byte* unit, int count, int zero, ScaleWindow& out) {
  alignas(64) uint8_t scales[256];
  const __m512i nibble = _mm512_set1_epi8(0x0f);
  const __m512i upper = _mm512_set1_epi8(0x30);
  const __m512i high = _mm512_loadu_si512(unit + 128);
  const __m512i low0 = _mm512_loadu_si512(unit);
  const __m512i low1 = _mm512_loadu_si512(unit + 64);
  _mm512_store_si512(scales, or_bits<0, 4>(bits_down<0>(low0, nibble), high, upper));
  _mm512_store_si512(scales + 64, or_bits<2, 4>(bits_down<0>(low1, nibble), high, upper));
  _mm512_store_si512(scales + 128, or_bits<4, 4>(bits_down<4>(low0, nibble), high, upper));
  _mm512_store_si512(scales + 192, or_bits<6, 4>(bits_down<4>(low1, nibble), high, upper));
  const __m512 d = halves_at(unit + 192);
  const __m512 minus_zero = _mm512_set1_ps(static_cast<float>(-zero));
  const __m512 middle = _mm512_set1_ps(32.0f);
  for (int g = 0; g < 2 * count; ++g) {
    const __m512 sub = _mm512_sub_ps(unsigned_at(scales + g * kBlockRows), middle);
    const __m512 scale = _mm512_mul_ps(d, sub);
    _mm512_store_ps(out.scale + g * kBlockRows, scale);
    _mm512_store_ps(out.bias + g * kBlockRows, _mm512_mul_ps(scale, minus_zero));
  }
}

inline void expand_k_4_4(const std::byte* unit, int count, ScaleWindow& out) {
  const __m512 d = halves_at(unit + 256);
  const __m512 minus_dmin = _mm512_sub_ps(_mm512_setzero_ps(), halves_at(unit + 288));
  const __m512i nibble = _mm512_set1_epi32(15);
  for (int g = 0; g < 2 * count; ++g) {
    const __m512i both = _mm512_cvtepu8_epi32(bytes16(unit + 16 * g));
    const __m512 scale = _mm512_cvtepi32_ps(_mm512_and_si512(both, nibble));
    const __m512 min = _mm512_cvtepi32_ps(_mm512_srli_epi32(both, 4));
    _mm512_store_ps(out.scale + g * kBlockRows, _mm512_mul_ps(d, scale));
    _mm512_store_ps(out.bias + g * kBlockRows, _mm512_mul_ps(minus_dmin, min));
  }
}

// first: a multiple of kWindow when there are super blocks.
inline void expand_window(
    const PackedMatrix::Layout& w,
    const std::byte* block,
    int64_t first,
    int count,
    ScaleWindow& out) {
  const std::byte* scales = block + w.scale_offset;
  const uint64_t super = static_cast<uint64_t>(first) / kWindow;
  switch (w.plan) {
    case ScalePlan::direct_f16:
      return expand_direct<ScalePlan::direct_f16>(w, scales, first, count, out);
    case ScalePlan::direct_bf16:
      return expand_direct<ScalePlan::direct_bf16>(w, scales, first, count, out);
    case ScalePlan::direct_f32:
      return expand_direct<ScalePlan::direct_f32>(w, scales, first, count, out);
    case ScalePlan::k_6_6:
      return expand_k_6_6(scales + super * 256, count, out);
    case ScalePlan::k_8:
      return expand_k_8(scales + super * 288, count, w.zero, out);
    case ScalePlan::k_6:
      return expand_k_6(scales + super * 224, count, w.zero, out);
    case ScalePlan::k_4_4:
      return expand_k_4_4(scales + super * 320, count, out);
    case ScalePlan::none:
      return;
  }
}

// acc to 16 columns of y, of which the first `width` exist.
inline void store_row(float* y, __m512 acc, int width, Store store) {
  const auto mask = static_cast<__mmask16>((1u << width) - 1);
  if (store == Store::add) {
    acc = _mm512_add_ps(acc, _mm512_maskz_loadu_ps(mask, y));
  }
  _mm512_mask_storeu_ps(y, mask, acc);
}

}  // namespace
}  // namespace quince::kernels
