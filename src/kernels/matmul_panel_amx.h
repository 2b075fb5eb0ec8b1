// Weight panels: tiles of up to two blocks of 16 outputs over a stretch of columns, and their
// products with activation tiles. Internal linkage, see matmul_unpack_avx512.h.
#pragma once

#include "kernels/matmul_dequant_amx.h"
#include "kernels/matmul_tiles_amx.h"

namespace quince::kernels {
namespace {

// Columns of a panel, in tiles, when it passes once: 16 KB of scratch for 32 outputs.
constexpr int64_t kPanelTiles = 8;
// The same for many rows: as many as stay in the first cache beside the sums of a pair of rows.
// Activations come from the second cache, going around the first.
constexpr int64_t kWidePanelTiles = 20;
static_assert(kPanelTiles == kWindow);

struct Panel {
  // High (or only), low parts.
  alignas(64) std::byte scratch[2][kWidePanelTiles * 2 * kTileBytes];
  const std::byte* b[2][2];  // [part][block]
  size_t step;
};

// Blocks first_block and, of two, second_block to places 0 and 1 of the panel.
template <int kB>
void fill_panel(
    const PackedMatrix::Layout& w,
    int64_t first_block,
    int64_t second_block,
    int64_t first,
    int64_t count,
    Panel& p) {
  const bool ready = w.format.kind == PackedKind::bf16;  // already tiles
  p.step = ready ? kTileBytes : 2 * kTileBytes;
  const size_t next_step = w.block_bytes * (second_block == first_block + 1 ? 2 : 1);
  for (int i = 0; i < kB; ++i) {
    const std::byte* block = w.block(i == 0 ? first_block : second_block);
    if (ready) {
      p.b[0][i] = block + static_cast<size_t>(first) * kTileBytes;
      continue;
    }
    std::byte* high = p.scratch[0] + static_cast<size_t>(i) * kTileBytes;
    std::byte* low = p.scratch[1] + static_cast<size_t>(i) * kTileBytes;
    p.b[0][i] = high;
    p.b[1][i] = low;
    if (w.format.kind == PackedKind::f16) {
      split_f16(w, block, first, count, high, low, p.step);
    } else {
      const std::byte* next = block + next_step;
      dequant_of(w.format)(w, block, next, first, count, high, p.step);
    }
  }
}

struct TileJob {
  const Rows& x;
  int64_t tiles;      // of a whole row of activations
  size_t part_bytes;  // from the high to the low half of a bf16_pair
  bool pair;

  explicit TileJob(const Rows& x)
      : x(x),
        tiles(column_tiles(x.k)),
        part_bytes(prepared_bytes(RowKind::bf16, x.m, x.k)),
        pair(x.kind == RowKind::bf16_pair) {}

  const std::byte* tile(int64_t row, int64_t column) const {
    return x.data + static_cast<size_t>(row / kTileRows * tiles + column) * kTileBytes;
  }
};

// Columns [first, first + count) of 16 * kA rows times the panel, added to the sums.
template <int kA, int kB, bool kManyRows, typename Meanwhile>
void multiply_panel(
    const TileJob& job,
    const Panel& p,
    int64_t row,
    int64_t first,
    int64_t count,
    const Meanwhile& meanwhile) {
  TileRun run{};
  run.a0 = job.tile(row, first);
  run.a1 = kA == 2 ? job.tile(row + kTileRows, first) : nullptr;
  run.b0 = p.b[0][0];
  run.b1 = kB == 2 ? p.b[0][1] : nullptr;
  run.b_step = p.step;
  run.tiles = count;
  add_products<kA, kB, kManyRows>(run, meanwhile);
  if (job.pair) {
    TileRun low = run;
    low.b0 = p.b[1][0];
    low.b1 = kB == 2 ? p.b[1][1] : nullptr;
    add_products<kA, kB, kManyRows>(low, [] {});
    run.a0 += job.part_bytes;
    if constexpr (kA == 2) {
      run.a1 += job.part_bytes;
    }
    add_products<kA, kB, kManyRows>(run, [] {});
  }
}

}  // namespace
}  // namespace quince::kernels
