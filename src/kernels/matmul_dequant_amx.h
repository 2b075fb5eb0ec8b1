// Packed codes to bf16 weight tiles. One tile row is a pair of columns of 16 outputs, and so is
// half a code vector: a tile comes out of a chunk without moving anything between lanes.
//
// A code becomes a float without a conversion: put as mantissa bits p .. under the exponent of 1 it
// reads f = 1 + code * 2^(p - 23), so w = scale * code + bias = S f + (bias - S) with
// S = scale * 2^(23 - p). bias - S rounds at scale * 2^-(p + 2), far below bf16's steps for p >= 8.
// The upper half of the result is the bf16, truncated; what truncation takes off on average is
// added beforehand by making all weights larger by two thirds of half a step (the factor that
// minimizes the squared error over mantissas spread as in Benford's law: 2^-8 E[m] / E[m^2]), which
// leaves 1.06 times the error of rounding to nearest. Internal linkage, see matmul_unpack_avx512.h.
#pragma once

#include "kernels/matmul_unpack_avx512.h"

namespace quince::kernels {
namespace {

constexpr float kTruncation = 1.0f + 2.0f / 3.0f / 256.0f;

// w = factor * f + offset for codes at mantissa bit p.
struct Line {
  __m512 factor;
  __m512 offset;
};

template <int kP>
inline Line line_at(__m512 scale, __m512 bias) {
  const __m512 factor = _mm512_mul_ps(scale, _mm512_set1_ps(static_cast<float>(1 << (23 - kP))));
  return {factor, _mm512_sub_ps(bias, factor)};
}

// The weights whose codes lie at bits kP .. kP + kBits - 1 of v.
template <int kP, int kBits>
inline __m512i weights_at(__m512i v, const Line& line) {
  const __m512i mask = _mm512_set1_epi32(((1 << kBits) - 1) << kP);
  const __m512i one = _mm512_set1_epi32(0x3f800000);
  const __m512i f = _mm512_ternarylogic_epi32(v, mask, one, 0xea);  // (v & mask) | one
  return _mm512_castps_si512(_mm512_fmadd_ps(line.factor, _mm512_castsi512_ps(f), line.offset));
}

// Upper halves of even and odd side by side: a tile row.
inline void store_pair(std::byte* out, __m512i even, __m512i odd) {
  _mm512_store_si512(out, _mm512_mask_mov_epi16(_mm512_srli_epi32(even, 16), 0xaaaaaaaau, odd));
}

// 4-bit chunk: all 8 codes of a lane are taken out of one code vector with two shifts.
inline void dequant_nibbles(const std::byte* chunk, __m512 scale, __m512 bias, std::byte* tile) {
  const Line at8 = line_at<8>(scale, bias);
  const Line at12 = line_at<12>(scale, bias);
  const Line at16 = line_at<16>(scale, bias);
  for (int i = 0; i < 4; ++i, tile += 4 * kVector) {
    // Bits of a lane: even step's columns at 0, 8, 16, 24, odd step's at 4, 12, 20, 28.
    const __m512i v = load512(chunk + i * kVector);
    const __m512i up = _mm512_slli_epi32(v, 8);
    const __m512i down = _mm512_srli_epi32(v, 12);
    store_pair(tile, weights_at<8, 4>(up, at8), weights_at<8, 4>(v, at8));
    store_pair(tile + kVector, weights_at<16, 4>(v, at16), weights_at<12, 4>(down, at12));
    store_pair(tile + 2 * kVector, weights_at<12, 4>(up, at12), weights_at<12, 4>(v, at12));
    store_pair(tile + 3 * kVector, weights_at<8, 4>(down, at8), weights_at<16, 4>(down, at16));
  }
}

inline void dequant_step(__m512i v, const Line& at8, std::byte* tile) {
  store_pair(tile, weights_at<8, 8>(_mm512_slli_epi32(v, 8), at8), weights_at<8, 8>(v, at8));
  store_pair(
      tile + kVector,
      weights_at<8, 8>(_mm512_srli_epi32(v, 8), at8),
      weights_at<8, 8>(_mm512_srli_epi32(v, 16), at8));
}

inline __m512 enlarged(const float* at) {
  return _mm512_mul_ps(_mm512_load_ps(at), _mm512_set1_ps(kTruncation));
}

// Chunk c of the window to one tile.
template <int kBits, int kGroup>
inline void dequant_chunk(
    const std::byte* chunk, const ScaleWindow& window, int c, std::byte* tile) {
  constexpr int kHalves = kGroup == 16 ? 2 : 1;
  const float* scale = window.scale + c * kHalves * kBlockRows;
  const float* bias = window.bias + c * kHalves * kBlockRows;
  if constexpr (kBits == 4) {
    return dequant_nibbles(chunk, enlarged(scale), enlarged(bias), tile);
  }
  __m512i codes[kSteps];
  load_codes<kBits>(chunk, codes);
  for (int half = 0; half < kHalves; ++half) {
    const Line at8 =
        line_at<8>(enlarged(scale + half * kBlockRows), enlarged(bias + half * kBlockRows));
    for (int s = half * 4; s < (kHalves == 1 ? kSteps : half * 4 + 4); ++s) {
      dequant_step(codes[s], at8, tile + s * 2 * kVector);
    }
  }
}

// Chunks [first, first + count) of a block to tiles `step` bytes apart. first: a multiple of
// kWindow. next: the block that will be read after this one.
template <int kBits, int kGroup>
void dequant_block(
    const PackedMatrix::Layout& w,
    const std::byte* block,
    const std::byte* next,
    int64_t first,
    int64_t count,
    std::byte* tiles,
    size_t step) {
  const Ahead ahead(w);
  ScaleWindow window;
  for (int64_t done = 0; done < count; done += kWindow) {
    const int some = count - done < kWindow ? static_cast<int>(count - done) : kWindow;
    expand_window(w, block, first + done, some, window);
    for (int c = 0; c < some; ++c, tiles += step) {
      const std::byte* chunk = block + (first + done + c) * (kBits * kVector);
      ahead.ask<kBits>(block, next, first + done + c);
      dequant_chunk<kBits, kGroup>(chunk, window, c, tiles);
    }
  }
}

using DequantBlock = void (*)(
    const PackedMatrix::Layout& w,
    const std::byte* block,
    const std::byte* next,
    int64_t first,
    int64_t count,
    std::byte* tiles,
    size_t step);

inline DequantBlock dequant_of(const PackedFormat& format) {
  const bool small = format.group == 16;
  switch (format.bits) {
    case 2:
      return small ? dequant_block<2, 16> : dequant_block<2, 32>;
    case 3:
      return small ? dequant_block<3, 16> : dequant_block<3, 32>;
    case 4:
      return dequant_block<4, 32>;
    case 5:
      return dequant_block<5, 32>;
    case 6:
      return small ? dequant_block<6, 16> : dequant_block<6, 32>;
    default:
      return dequant_block<8, 32>;
  }
}

// f16 columns [first, first + count) * 32 of a block as two bf16 tiles that add up to it exactly.
inline void split_f16(
    const PackedMatrix::Layout& w,
    const std::byte* block,
    int64_t first,
    int64_t count,
    std::byte* high,
    std::byte* low,
    size_t step) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int32_t>(0xffff0000u));
  const int64_t columns = w.columns;
  for (int64_t t = 0; t < count; ++t, high += step, low += step) {
    for (int j = 0; j < kTileColumns / 2; ++j) {
      const int64_t column = (first + t) * kTileColumns + 2 * j;
      __m512i parts[2][2];  // even, odd; high, low
      for (int odd = 0; odd < 2; ++odd) {
        const __m512 value = column + odd < columns
                                 ? halves_at(block + (column + odd) * kBlockRows * 2)
                                 : _mm512_setzero_ps();
        parts[odd][0] = _mm512_and_si512(_mm512_castps_si512(value), upper);
        parts[odd][1] =
            _mm512_castps_si512(_mm512_sub_ps(value, _mm512_castsi512_ps(parts[odd][0])));
      }
      store_pair(high + j * kVector, parts[0][0], parts[1][0]);
      store_pair(low + j * kVector, parts[0][1], parts[1][1]);
    }
  }
}

}  // namespace
}  // namespace quince::kernels
