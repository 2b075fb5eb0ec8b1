// What attention_amx.cpp computes with: numbers cut into bf16 parts, blocks of keys and values
// turned into tiles, and products of tiles.
//
// Tiles lie whole in memory, 1 KiB each. A tile of a left operand: [16 rows][32 columns]. A tile of
// a right operand: [16 pairs of rows][16 columns][2].
#pragma once

#include <immintrin.h>

#include <type_traits>

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

// A number is cut into two bf16, high + low, of which a register holds pairs: lane i of one vector
// in the lower half of its lane i, lane i of another in the upper one.
struct Cut {
  __m512i high;
  __m512i low;
};

inline __m512i pairs(__m512i even, __m512i odd) {  // of the upper halves of their lanes
  return _mm512_mask_mov_epi16(_mm512_srli_epi32(even, 16), 0xaaaaaaaau, odd);
}

inline __m512i to_nearest(F x) {  // the upper half of a lane is the nearest bf16
  return _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));
}

inline __m512i without_high(F x, __m512i high) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  return _mm512_castps_si512(sub(x, _mm512_castsi512_ps(_mm512_and_si512(high, upper))));
}

inline __m512i nearest_pairs(F even, F odd) {
  return pairs(to_nearest(even), to_nearest(odd));
}

// high is the nearest bf16, not a truncated one: the product of two lows is left out, and lows that
// all have the sign of their number would add up.
inline Cut cut_pairs(F even, F odd) {
  const __m512i e = to_nearest(even);
  const __m512i o = to_nearest(odd);
  const F e_low = _mm512_castsi512_ps(without_high(even, e));
  const F o_low = _mm512_castsi512_ps(without_high(odd, o));
  return {pairs(e, o), nearest_pairs(e_low, o_low)};
}

// Numbers that were f16: what a truncated high leaves is a bf16. (One side may truncate.)
inline Cut cut_f16_pairs(F even, F odd) {
  const __m512i e = _mm512_castps_si512(even);
  const __m512i o = _mm512_castps_si512(odd);
  return {pairs(e, o), pairs(without_high(even, e), without_high(odd, o))};
}

inline uint16_t* tile(uint16_t* tiles, int64_t index) {
  return tiles + index * kTileNumbers;
}

// Of a step of 32 numbers along the depth, i and 16 + i are a pair: queries need no shuffling then.

// Keys of a block [dim][32 positions] to right tiles [depth step][2 position groups].
template <typename T>
void key_tiles(const typename T::Bits* keys, int dim, uint16_t* high, uint16_t* low) {
  for (int first = 0; first < dim; first += kDepth) {
    for (int i = 0; i < kTile; ++i) {
      for (int n = 0; n < 2; ++n) {
        const auto row = [&](int d) {
          return d < dim ? T::load_vector(keys + static_cast<int64_t>(d) * kKvBlock + n * kTile)
                         : zero();
        };
        const F even = row(first + i);
        const F odd = row(first + kTile + i);
        const int64_t at = (n * kTile + i) * kDepth;
        if constexpr (std::is_same_v<T, StoredBf16>) {
          _mm512_store_si512(high + at, pairs(_mm512_castps_si512(even), _mm512_castps_si512(odd)));
        } else {
          const Cut cut =
              std::is_same_v<T, StoredF16> ? cut_f16_pairs(even, odd) : cut_pairs(even, odd);
          _mm512_store_si512(high + at, cut.high);
          _mm512_store_si512(low + at, cut.low);
        }
      }
    }
    high += 2 * kTileNumbers;
    low += 2 * kTileNumbers;
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
// first kTerms. Tile registers: 0-3 sums, 4-5 left, 6-7 right. meanwhile: called once a step; tiles
// multiply in the background, so other vector work between them costs little.
template <int M, int N, bool kAdd, int kTerms, typename Meanwhile>
inline void multiply(
    const Left& a, const Right& b, int steps, float* c, int64_t ldc, const Meanwhile& meanwhile) {
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
  auto products = [&] {
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
    meanwhile();
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
