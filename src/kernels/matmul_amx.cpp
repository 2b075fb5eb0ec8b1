// Many activation rows: weights become bf16 tiles in a scratch panel that stays in the first two
// caches, 32 outputs at a time, and all activation rows pass over it. Few rows: as avx512.
#include "kernels/matmul_avx512.h"
#include "kernels/matmul_dequant_amx.h"
#include "kernels/matmul_tiles_amx.h"

namespace quince::kernels {

namespace {

// From how many activation rows on tiles are faster (measured, see bench/kernels).
constexpr int64_t kTilesQuantized = 9;
constexpr int64_t kTilesF16 = 12;
constexpr int64_t kTilesBf16 = 3;

// Columns of a panel, in tiles: 16 KB of scratch for 32 outputs. Twice that falls out of the first
// cache beside the codes and the activations, and making weights then takes half as long again.
constexpr int64_t kPanelTiles = 8;
// Activations that may be passed over again for every 32 outputs.
constexpr int64_t kActivationBytes = int64_t{1} << 20;

RowKind row_kind_amx(const PackedMatrix::Layout& w, int64_t m) {
  switch (w.format.kind) {
    case PackedKind::f32:
      return RowKind::f32;
    case PackedKind::f16:
      return m < kTilesF16 ? RowKind::f32 : RowKind::bf16_pair;
    case PackedKind::bf16:
      return m < kTilesBf16 ? RowKind::f32 : RowKind::bf16;
    default:
      return m < kTilesQuantized ? RowKind::int8 : RowKind::bf16;
  }
}

// Weight tiles of 32 outputs, or 16: their blocks, and scratch when they must be made.
struct Panel {
  alignas(64) std::byte scratch[2][kPanelTiles * 2 * kTileBytes];  // high (or only), low parts
  const std::byte* b[2][2];                                        // [part][block]
  size_t step;
};

void fill_panel(
    const PackedMatrix::Layout& w,
    int64_t block,
    int blocks,
    int64_t first,
    int64_t count,
    Panel& p) {
  if (w.format.kind == PackedKind::bf16) {  // already tiles
    p.step = kTileBytes;
    for (int i = 0; i < blocks; ++i) {
      p.b[0][i] = w.block(block + i) + static_cast<size_t>(first) * kTileBytes;
    }
    return;
  }
  p.step = 2 * kTileBytes;
  for (int i = 0; i < blocks; ++i) {
    std::byte* high = p.scratch[0] + static_cast<size_t>(i) * kTileBytes;
    std::byte* low = p.scratch[1] + static_cast<size_t>(i) * kTileBytes;
    p.b[0][i] = high;
    p.b[1][i] = low;
    if (w.format.kind == PackedKind::f16) {
      split_f16(w, w.block(block + i), first, count, high, low, p.step);
    } else {
      dequant_of(w.format)(w, w.block(block + i), first, count, high, p.step);
    }
  }
}

struct TileJob {
  const MatmulPart& part;
  int64_t tiles;      // of a whole row of activations
  size_t part_bytes;  // from the high to the low half of a bf16_pair
  bool pair;
};

const std::byte* activation_tile(const TileJob& job, int64_t row, int64_t tile) {
  return job.part.x->data + static_cast<size_t>(row / kTileRows * job.tiles + tile) * kTileBytes;
}

template <int kA, int kB>
void multiply_panel(const TileJob& job, const Panel& p, int64_t row, int64_t first, int64_t count) {
  TileRun run{};
  run.a0 = activation_tile(job, row, first);
  run.a1 = kA == 2 ? activation_tile(job, row + kTileRows, first) : nullptr;
  run.b0 = p.b[0][0];
  run.b1 = kB == 2 ? p.b[0][1] : nullptr;
  run.b_step = p.step;
  run.tiles = count;
  add_products<kA, kB>(run);
  if (job.pair) {
    TileRun low = run;
    low.b0 = p.b[1][0];
    low.b1 = kB == 2 ? p.b[1][1] : nullptr;
    add_products<kA, kB>(low);
    run.a0 += job.part_bytes;
    if constexpr (kA == 2) {
      run.a1 += job.part_bytes;
    }
    add_products<kA, kB>(run);
  }
}

// Sums of kA x kB tiles, as store_sums() leaves them, to y: rows [row, row + rows), outputs from
// `block` on.
template <int kA, int kB>
void put_sums(
    const MatmulPart& part, const float* sums, int64_t block, int64_t row, int rows, bool add) {
  const Store store = add ? Store::add : Store::set;
  const int last = part.w->block_rows(block + kB - 1);
  for (int i = 0; i < rows; ++i) {
    float* y = part.y + (row + i) * part.ldy + block * kBlockRows;
    const float* from = sums + (i / kTileRows * kB * kTileRows + i % kTileRows) * kBlockRows;
    for (int b = 0; b < kB; ++b) {
      const __m512 values = _mm512_load_ps(from + b * kTileRows * kBlockRows);
      store_row(y + b * kBlockRows, values, b == kB - 1 ? last : kBlockRows, store);
    }
  }
}

// Columns of activations that one pass takes, in tiles, and how many of them a panel takes.
struct Stripe {
  int64_t begin;
  int64_t end;
  int64_t panel;
};

// Panels of equal size, unless super blocks say where they begin.
int64_t panel_tiles(int64_t tiles) {
  static_assert(kPanelTiles == kWindow);
  if (tiles % kWindow == 0) {
    return kPanelTiles;
  }
  const int64_t panels = (tiles + kPanelTiles - 1) / kPanelTiles;
  return (tiles + panels - 1) / panels;
}

// Up to 32 rows from `row` times the panel of columns [first, first + count) of a stripe. sums: of
// these rows, from panel to panel.
template <int kA, int kB>
void multiply_rows(
    const TileJob& job,
    const Panel& p,
    const Stripe& stripe,
    int64_t first,
    int64_t count,
    int64_t block,
    int64_t row,
    int rows,
    float* sums) {
  if (first == stripe.begin) {
    zero_sums<kA, kB>();
  } else {
    load_sums<kA, kB>(sums);
  }
  multiply_panel<kA, kB>(job, p, row, first, count);
  store_sums<kA, kB>(sums);
  if (first + count == stripe.end) {
    const bool add = job.part.store == Store::add || stripe.begin > 0;
    put_sums<kA, kB>(job.part, sums, block, row, rows, add);
  }
}

// Rows that pass together; their sums lie on the stack.
constexpr int64_t kMostRows = 512;
constexpr int64_t kFewestRows = 128;  // fewer would make weights a large part of the work again

// kB blocks, one stripe, all rows of the part (at most kMostRows). Sums go from panel to panel in
// scratch memory, not in y: rows of y are often a multiple of 4 KB apart, so that all would compete
// for the same few places in the caches.
template <int kB>
void multiply_block(const TileJob& job, Panel& p, const Stripe& stripe, int64_t block) {
  constexpr int kSums = kMostRows * kBlockRows * kB;
  alignas(64) float sums[kSums];
  const MatmulPart& part = job.part;
  for (int64_t first = stripe.begin; first < stripe.end; first += stripe.panel) {
    const int64_t left = stripe.end - first;
    const int64_t count = left < stripe.panel ? left : stripe.panel;
    fill_panel(*part.w, block, kB, first, count, p);
    float* row_sums = sums;
    int64_t row = part.first_row;
    for (; row + kTileRows < part.last_row; row += 2 * kTileRows) {
      const int64_t all = part.last_row - row;
      const int rows = all < 2 * kTileRows ? static_cast<int>(all) : 2 * kTileRows;
      multiply_rows<2, kB>(job, p, stripe, first, count, block, row, rows, row_sums);
      row_sums += 2 * kTileRows * kB * kBlockRows;
    }
    if (row < part.last_row) {
      const int rows = static_cast<int>(part.last_row - row);
      multiply_rows<1, kB>(job, p, stripe, first, count, block, row, rows, row_sums);
    }
  }
}

// At most 16 * kA rows: the sums stay in tiles over all columns.
template <int kA, int kB>
void multiply_narrow(const TileJob& job, Panel& p, int64_t block) {
  const MatmulPart& part = job.part;
  zero_sums<kA, kB>();
  for (int64_t first = 0; first < job.tiles; first += kPanelTiles) {
    const int64_t left = job.tiles - first;
    const int64_t count = left < kPanelTiles ? left : kPanelTiles;
    fill_panel(*part.w, block, kB, first, count, p);
    multiply_panel<kA, kB>(job, p, part.first_row, first, count);
  }
  alignas(64) float sums[kA * kB * kTileRows * kBlockRows];
  store_sums<kA, kB>(sums);
  const int rows = static_cast<int>(part.last_row - part.first_row);
  put_sums<kA, kB>(part, sums, block, part.first_row, rows, part.store == Store::add);
}

template <int kA>
void multiply_all_narrow(const TileJob& job, Panel& p) {
  for (int64_t block = job.part.first_block; block < job.part.last_block; block += 2) {
    if (block + 1 < job.part.last_block) {
      multiply_narrow<kA, 2>(job, p, block);
    } else {
      multiply_narrow<kA, 1>(job, p, block);
    }
  }
}

int64_t clamp(int64_t value, int64_t low, int64_t high) {
  return value < low ? low : (value > high ? high : value);
}

// More than 32 rows. Activations should stay in the cache while panels pass: so not too many rows
// at once, and if that makes too few of them, not all columns.
void multiply_wide(const TileJob& job, Panel& p) {
  constexpr int64_t kStep = 2 * kTileRows;
  const int64_t tile_row_bytes = kTileColumns * 2 * (job.pair ? 2 : 1);
  const int64_t m = job.part.last_row - job.part.first_row;
  const int64_t most = clamp(
      kActivationBytes / (tile_row_bytes * job.tiles) / kStep * kStep, kFewestRows, kMostRows);
  const int64_t passes = (m + most - 1) / most;
  const int64_t rows = ((m + passes - 1) / passes + kStep - 1) / kStep * kStep;
  const int64_t width = clamp(
      kActivationBytes / (tile_row_bytes * rows) / kPanelTiles * kPanelTiles,
      kPanelTiles,
      job.tiles);
  for (int64_t row = job.part.first_row; row < job.part.last_row; row += rows) {
    MatmulPart part = job.part;
    part.first_row = row;
    part.last_row = clamp(row + rows, row, job.part.last_row);
    const TileJob pass{part, job.tiles, job.part_bytes, job.pair};
    for (int64_t begin = 0; begin < job.tiles; begin += width) {
      const int64_t end = clamp(begin + width, begin, job.tiles);
      const Stripe stripe{begin, end, panel_tiles(end - begin)};
      for (int64_t block = part.first_block; block < part.last_block; block += 2) {
        if (block + 1 < part.last_block) {
          multiply_block<2>(pass, p, stripe, block);
        } else {
          multiply_block<1>(pass, p, stripe, block);
        }
      }
    }
  }
}

void multiply_tiles(const MatmulPart& part) {
  const int64_t columns = part.w->columns;
  const bool pair = part.x->kind == RowKind::bf16_pair;
  const TileJob job{
      part, column_tiles(columns), prepared_bytes(RowKind::bf16, part.x->m, columns), pair};
  const int64_t rows = part.last_row - part.first_row;
  const TileScope scope;
  Panel p;
  if (rows <= kTileRows) {
    multiply_all_narrow<1>(job, p);
  } else if (rows <= 2 * kTileRows) {
    multiply_all_narrow<2>(job, p);
  } else {
    multiply_wide(job, p);
  }
}

void multiply_amx(const MatmulPart& part) {
  switch (part.x->kind) {
    case RowKind::int8:
      return multiply_int8_avx512(part);
    case RowKind::f32:
      return multiply_f32_avx512(part);
    default:
      return multiply_tiles(part);
  }
}

// 16 columns from `column` on, zeros behind k.
inline __m512 load_columns(const float* x, int64_t column, int64_t k) {
  const int64_t left = k - column;
  if (left >= 16) {
    return _mm512_loadu_ps(x + column);
  }
  const unsigned mask = left <= 0 ? 0 : (1u << left) - 1;
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), x + column);
}

inline __m512i as_bits(__m512bh v) {
  return __builtin_bit_cast(__m512i, v);
}

// What rounding to bf16 took off.
inline __m512 rest(__m512 value, __m512i rounded) {
  return _mm512_sub_ps(value, _mm512_castsi512_ps(_mm512_slli_epi32(rounded, 16)));
}

void prepare_tile_row(const Rows& rows, const float* x, int64_t row) {
  const int64_t tiles = column_tiles(rows.k);
  const bool pair = rows.kind == RowKind::bf16_pair;
  const size_t part_bytes = prepared_bytes(RowKind::bf16, rows.m, rows.k);
  std::byte* out = rows.data + static_cast<size_t>(row / kTileRows * tiles) * kTileBytes +
                   static_cast<size_t>(row % kTileRows) * kVector;
  for (int64_t t = 0; t < tiles; ++t, out += kTileBytes) {
    const __m512 a = load_columns(x, t * kTileColumns, rows.k);
    const __m512 b = load_columns(x, t * kTileColumns + 16, rows.k);
    const __m512i high = as_bits(_mm512_cvtne2ps_pbh(b, a));
    _mm512_store_si512(out, high);
    if (pair) {
      const __m512i a_high = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(high));
      const __m512i b_high = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(high, 1));
      const __m512bh low = _mm512_cvtne2ps_pbh(rest(b, b_high), rest(a, a_high));
      _mm512_store_si512(out + part_bytes, as_bits(low));
    }
  }
}

void clear_tile_row(const Rows& rows, int64_t row) {
  const int64_t tiles = column_tiles(rows.k);
  const size_t part_bytes = prepared_bytes(RowKind::bf16, rows.m, rows.k);
  std::byte* out = rows.data + static_cast<size_t>(row / kTileRows * tiles) * kTileBytes +
                   static_cast<size_t>(row % kTileRows) * kVector;
  for (int64_t t = 0; t < tiles; ++t, out += kTileBytes) {
    _mm512_store_si512(out, _mm512_setzero_si512());
    if (rows.kind == RowKind::bf16_pair) {
      _mm512_store_si512(out + part_bytes, _mm512_setzero_si512());
    }
  }
}

void prepare_amx(const Rows& rows, const float* x, int64_t ldx, int64_t first, int64_t last) {
  if (rows.kind == RowKind::int8 || rows.kind == RowKind::f32) {
    return prepare_avx512(rows, x, ldx, first, last);
  }
  for (int64_t row = first; row < last; ++row) {
    prepare_tile_row(rows, x + row * ldx, row);
  }
  if (first < last && last == rows.m) {  // whoever has the last row fills up its tile
    for (int64_t row = last; row % kTileRows != 0; ++row) {
      clear_tile_row(rows, row);
    }
  }
}

}  // namespace

const MatmulKernels kAmxMatmul{CpuPath::amx, row_kind_amx, prepare_amx, multiply_amx};

}  // namespace quince::kernels
