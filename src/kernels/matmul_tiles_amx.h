// Tile arithmetic: blocks of up to 32 activation rows x 32 outputs in four tile registers.
// Registers: 0-3 sums, [activation tile][weight tile]; 4, 5 activations; 6, 7 weights. Internal
// linkage, see matmul_unpack_avx512.h.
#pragma once

#include <immintrin.h>

#include "kernels/matmul_kernels.h"

namespace quince::kernels {
namespace {

// Intel's layout of LDTILECFG's operand, palette 1.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Holds the thread's tile configuration; releasing it keeps task switches cheap.
class TileScope {
 public:
  TileScope() {
    const TileConfig config;
    _tile_loadconfig(&config);
  }
  ~TileScope() {
    _tile_release();
  }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

// Where a run of tile products finds its operands: tiles of activation rows 0-15 and 16-31 at a0
// and a1, 1 KB apart along the columns; weight tiles of outputs 0-15 and 16-31 at b0 and b1, b_step
// apart.
struct TileRun {
  const std::byte* a0;
  const std::byte* a1;
  const std::byte* b0;
  const std::byte* b1;
  size_t b_step;
  int64_t tiles;  // along the columns
};

template <int kA, int kB>
inline void zero_sums() {
  _tile_zero(0);
  if constexpr (kB == 2) {
    _tile_zero(1);
  }
  if constexpr (kA == 2) {
    _tile_zero(2);
    if constexpr (kB == 2) {
      _tile_zero(3);
    }
  }
}

// Loads of what is used once a pass and comes from the second cache go around the first one, so
// that the weights stay there: worth a third of the speed.

// c: whole tiles, [activation tile][weight tile][16][16].
template <int kA, int kB>
inline void load_sums(const float* c) {
  constexpr int kTile = kTileRows * kBlockRows;
  _tile_stream_loadd(0, c, 64);
  if constexpr (kB == 2) {
    _tile_stream_loadd(1, c + kTile, 64);
  }
  if constexpr (kA == 2) {
    _tile_stream_loadd(2, c + kB * kTile, 64);
    if constexpr (kB == 2) {
      _tile_stream_loadd(3, c + 3 * kTile, 64);
    }
  }
}

template <int kA, int kB>
inline void store_sums(float* c) {
  constexpr int kTile = kTileRows * kBlockRows;
  _tile_stored(0, c, 64);
  if constexpr (kB == 2) {
    _tile_stored(1, c + kTile, 64);
  }
  if constexpr (kA == 2) {
    _tile_stored(2, c + kB * kTile, 64);
    if constexpr (kB == 2) {
      _tile_stored(3, c + 3 * kTile, 64);
    }
  }
}

// Adds the products of a run to the sums. kManyRows: the weights pass again and again, not the
// activations. meanwhile: called once a tile column; tiles multiply in the background, so other
// vector work between them costs little.
template <int kA, int kB, bool kManyRows, typename Meanwhile>
inline void add_products(const TileRun& run, const Meanwhile& meanwhile) {
  for (int64_t i = 0; i < run.tiles; ++i) {
    const size_t a = static_cast<size_t>(i) * kTileBytes;
    const size_t b = static_cast<size_t>(i) * run.b_step;
    if constexpr (kManyRows) {
      _tile_stream_loadd(4, run.a0 + a, 64);
    } else {
      _tile_loadd(4, run.a0 + a, 64);
    }
    _tile_loadd(6, run.b0 + b, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kB == 2) {
      _tile_loadd(7, run.b1 + b, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kA == 2) {
      if constexpr (kManyRows) {
        _tile_stream_loadd(5, run.a1 + a, 64);
      } else {
        _tile_loadd(5, run.a1 + a, 64);
      }
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (kB == 2) {
        _tile_dpbf16ps(3, 5, 7);
      }
    }
    meanwhile();
  }
}

}  // namespace
}  // namespace quince::kernels
