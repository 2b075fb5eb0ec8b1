// What attention_amx.cpp computes with: numbers cut into bf16 parts, blocks of keys and values
// turned into tiles, and products of tiles.
//
// Tiles lie whole in memory, 1 KiB each. A tile of a left operand: [16 rows][32 columns]. A tile of
// a right operand: [16 pairs of rows][16 columns][2].
#pragma once

#include <immintrin.h>

#include "kernels/attention_softmax.h"

namespace quince::kernels {
namespace {

constexpr int kTile = 16;                     // rows, and columns of a sum
constexpr int kDepth = 32;                    // columns of a left tile, rows of a right one
constexpr int kTileNumbers = kTile * kDepth;  // bf16 numbers in a tile
constexpr int kTileBytes = 2 * kTileNumbers;
static_assert(kKvBlock == kDepth && kLanes == 16);

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// A number is cut into high, the nearest bf16, and low, what is left. Nearest, not truncated: the
// product of two lows is left out, and lows that all have the sign of their number would add up.
struct Cut {
  __m512i high;
  __m512i low;
};

inline __m512i nearest_bf16(F x) {  // in the upper half of each lane, the lower half 0
  __m512i bits = _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));
  return _mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int>(0xffff0000)));
}

inline F minus(F x, __m512i high) {
  return sub(x, _mm512_castsi512_ps(high));
}

// Lane i of `even` beside lane i of `odd`, rounded.
inline __m512i nearest_pairs(F even, F odd) {
  return _mm512_or_si512(_mm512_srli_epi32(nearest_bf16(even), 16), nearest_bf16(odd));
}

// The same, cut.
inline Cut cut_pairs(F even, F odd) {
  __m512i e = nearest_bf16(even);
  __m512i o = nearest_bf16(odd);
  __m512i e_low = nearest_bf16(minus(even, e));
  __m512i o_low = nearest_bf16(minus(odd, o));
  return {
      _mm512_or_si512(_mm512_srli_epi32(e, 16), o),
      _mm512_or_si512(_mm512_srli_epi32(e_low, 16), o_low)};
}

// 32 numbers in their order.
inline Cut cut_row(F left, F right) {
  __m512i l = nearest_bf16(left);
  __m512i r = nearest_bf16(right);
  auto packed = [](__m512i a, __m512i b) {
    __m256i low_half = _mm512_cvtepi32_epi16(_mm512_srli_epi32(a, 16));
    __m256i high_half = _mm512_cvtepi32_epi16(_mm512_srli_epi32(b, 16));
    return _mm512_inserti64x4(_mm512_castsi256_si512(low_half), high_half, 1);
  };
  __m512bh low = _mm512_cvtne2ps_pbh(minus(right, r), minus(left, l));
  return {packed(l, r), reinterpret_cast<__m512i>(low)};
}

inline uint16_t* tile(uint16_t* tiles, int64_t index) {
  return tiles + index * kTileNumbers;
}

// Keys of a block [dim][32 positions] to right tiles [depth step][2 position groups].
template <typename T>
void key_tiles(const typename T::Bits* keys, int dim, uint16_t* high, uint16_t* low) {
  const int steps = (dim + kDepth - 1) / kDepth;
  for (int pair = 0; pair < steps * kTile; ++pair) {
    for (int n = 0; n < 2; ++n) {
      auto row = [&](int d) {
        return d < dim ? T::load_vector(keys + static_cast<int64_t>(d) * kKvBlock + n * kTile)
                       : zero();
      };
      Cut cut = cut_pairs(row(2 * pair), row(2 * pair + 1));
      int64_t at = ((pair / kTile) * 2 + n) * kTileNumbers + (pair % kTile) * kDepth;
      _mm512_store_si512(high + at, cut.high);
      _mm512_store_si512(low + at, cut.low);
    }
  }
}

// Values of a block [32 positions][width] to right tiles [width / 16].
template <typename T>
void value_tiles(const typename T::Bits* values, int width, uint16_t* to) {
  for (int pair = 0; pair < kTile; ++pair) {
    const auto* even = values + static_cast<int64_t>(2 * pair) * width;
    for (int n = 0; n < width / kTile; ++n) {
      int64_t at = static_cast<int64_t>(n) * kTileNumbers + pair * kDepth;
      _mm512_store_si512(
          to + at,
          nearest_pairs(
              T::load_vector(even + n * kTile), T::load_vector(even + width + n * kTile)));
    }
  }
}

// Operands of a sum over `steps` tiles: where the tiles of two neighbouring rows (columns) begin
// and how far apart they lie.
struct Left {
  const uint16_t* high[2];
  const uint16_t* low[2];
  int64_t stride;
};
struct Right {
  const uint16_t* high[2];
  const uint16_t* low[2];
  int64_t stride;
};

// c[M tiles][N tiles] (+)= left * right, of the products high * high, low * high, high * low the
// first kTerms. Tile registers: 0-3 sums, 4-5 left, 6-7 right.
template <int M, int N, bool kAdd, int kTerms>
inline void multiply(const Left& a, const Right& b, int steps, float* c, int64_t ldc) {
  const int64_t row_bytes = ldc * static_cast<int64_t>(sizeof(float));
  float* c0 = c;
  float* c1 = c + kTile * ldc;
  if constexpr (kAdd) {
    _tile_loadd(0, c0, row_bytes);
    if constexpr (N > 1) {
      _tile_loadd(1, c0 + kTile, row_bytes);
    }
    if constexpr (M > 1) {
      _tile_loadd(2, c1, row_bytes);
    }
    if constexpr (M > 1 && N > 1) {
      _tile_loadd(3, c1 + kTile, row_bytes);
    }
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  auto products = [] {
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (N > 1) {
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (M > 1) {
      _tile_dpbf16ps(2, 5, 6);
    }
    if constexpr (M > 1 && N > 1) {
      _tile_dpbf16ps(3, 5, 7);
    }
  };
  for (int s = 0; s < steps; ++s) {
    _tile_loadd(6, b.high[0] + s * b.stride, 64);
    if constexpr (N > 1) {
      _tile_loadd(7, b.high[1] + s * b.stride, 64);
    }
    if constexpr (kTerms > 1) {
      _tile_loadd(4, a.low[0] + s * a.stride, 64);
      if constexpr (M > 1) {
        _tile_loadd(5, a.low[1] + s * a.stride, 64);
      }
      products();
    }
    _tile_loadd(4, a.high[0] + s * a.stride, 64);
    if constexpr (M > 1) {
      _tile_loadd(5, a.high[1] + s * a.stride, 64);
    }
    products();
    if constexpr (kTerms > 2) {
      _tile_loadd(6, b.low[0] + s * b.stride, 64);
      if constexpr (N > 1) {
        _tile_loadd(7, b.low[1] + s * b.stride, 64);
      }
      products();
    }
  }
  _tile_stored(0, c0, row_bytes);
  if constexpr (N > 1) {
    _tile_stored(1, c0 + kTile, row_bytes);
  }
  if constexpr (M > 1) {
    _tile_stored(2, c1, row_bytes);
  }
  if constexpr (M > 1 && N > 1) {
    _tile_stored(3, c1 + kTile, row_bytes);
  }
}

}  // namespace
}  // namespace quince::kernels
