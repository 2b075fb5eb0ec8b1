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
constexpr size_t kActivationBytes = size_t{1} << 20;

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
    run.a1 += job.part_bytes;
    add_products<kA, kB>(run);
  }
}

// Sums of kA tiles of rows to y: rows [row, row + rows), outputs of kB blocks from `block` on.
template <int kA, int kB>
void store_part(const MatmulPart& part, int64_t block, int64_t row, int rows, bool add) {
  constexpr int kStride = kB * kBlockRows;
  alignas(64) float sums[kA * kTileRows * kStride];
  store_sums<kA, kB>(sums, kStride);
  float* y = part.y + row * part.ldy + block * kBlockRows;
  const int width = (kB - 1) * kBlockRows + part.w->block_rows(block + kB - 1);
  for (int i = 0; i < rows; ++i) {
    for (int b = 0; b < kB; ++b) {
      const int left = width - b * kBlockRows;
      store_row(
          y + i * part.ldy + b * kBlockRows,
          _mm512_load_ps(sums + i * kStride + b * kBlockRows),
          left < kBlockRows ? left : kBlockRows,
          add ? Store::add : Store::set);
    }
  }
}

// Rows [row, row + rows), rows <= 16 * kA, times one panel.
template <int kA, int kB>
void multiply_rows(
    const TileJob& job,
    const Panel& p,
    int64_t block,
    int64_t row,
    int rows,
    int64_t first,
    int64_t count,
    bool add) {
  const MatmulPart& part = job.part;
  float* y = part.y + row * part.ldy + block * kBlockRows;
  const int width = (kB - 1) * kBlockRows + part.w->block_rows(block + kB - 1);
  if (rows == kA * kTileRows && width == kB * kBlockRows) {
    if (add) {
      load_sums<kA, kB>(y, part.ldy);
    } else {
      zero_sums<kA, kB>();
    }
    multiply_panel<kA, kB>(job, p, row, first, count);
    store_sums<kA, kB>(y, part.ldy);
    return;
  }
  zero_sums<kA, kB>();
  multiply_panel<kA, kB>(job, p, row, first, count);
  store_part<kA, kB>(part, block, row, rows, add);
}

// One panel and columns [first, first + count) * 32, all activation rows.
template <int kB>
void multiply_block(const TileJob& job, Panel& p, int64_t block, int64_t first, int64_t count) {
  const MatmulPart& part = job.part;
  fill_panel(*part.w, block, kB, first, count, p);
  const bool add = part.store == Store::add || first > 0;
  int64_t row = part.first_row;
  for (; row + kTileRows < part.last_row; row += 2 * kTileRows) {
    const int64_t left = part.last_row - row;
    const int rows = left < 2 * kTileRows ? static_cast<int>(left) : 2 * kTileRows;
    multiply_rows<2, kB>(job, p, block, row, rows, first, count, add);
  }
  if (row < part.last_row) {
    const int rows = static_cast<int>(part.last_row - row);
    multiply_rows<1, kB>(job, p, block, row, rows, first, count, add);
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
  store_part<kA, kB>(
      part,
      block,
      part.first_row,
      static_cast<int>(part.last_row - part.first_row),
      part.store == Store::add);
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

void multiply_tiles(const MatmulPart& part) {
  const PackedMatrix::Layout& w = *part.w;
  const int64_t tiles = column_tiles(w.columns);
  const bool pair = part.x->kind == RowKind::bf16_pair;
  const TileJob job{part, tiles, prepared_bytes(RowKind::bf16, part.x->m, w.columns), pair};
  const int64_t rows = part.last_row - part.first_row;
  const TileScope scope;
  Panel p;
  if (rows <= 2 * kTileRows) {
    return rows <= kTileRows ? multiply_all_narrow<1>(job, p) : multiply_all_narrow<2>(job, p);
  }
  // The panel's columns: all, unless the activations of these columns would not stay in the cache
  // while all panels pass. Then a narrower stripe of columns is done for all panels first.
  int64_t stripe = tiles;
  const size_t row_bytes = static_cast<size_t>(rows) * kTileColumns * 2 * (pair ? 2 : 1);
  if (row_bytes * static_cast<size_t>(tiles) > kActivationBytes) {
    stripe = static_cast<int64_t>(kActivationBytes / row_bytes) / kWindow * kWindow;
    stripe = stripe < kWindow ? kWindow : stripe;
  }
  for (int64_t begin = 0; begin < tiles; begin += stripe) {
    const int64_t end = begin + stripe < tiles ? begin + stripe : tiles;
    for (int64_t block = part.first_block; block < part.last_block; block += 2) {
      for (int64_t first = begin; first < end; first += kPanelTiles) {
        const int64_t count = end - first < kPanelTiles ? end - first : kPanelTiles;
        if (block + 1 < part.last_block) {
          multiply_block<2>(job, p, block, first, count);
        } else {
          multiply_block<1>(job, p, block, first, count);
        }
      }
    }
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
