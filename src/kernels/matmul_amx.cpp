// Many activation rows: weights become bf16 tiles in a scratch panel, 32 outputs at a time, and all
// activation rows pass over it. Up to 32: the same chunk by chunk. Very few: as avx512.
#include "kernels/matmul_amx.h"
#include "kernels/matmul_avx512.h"
#include "kernels/matmul_panel_amx.h"

namespace quince::kernels {

namespace {

// From how many activation rows on tiles are faster (measured, see bench/kernels).
constexpr int64_t kTilesF16 = 12;
constexpr int64_t kTilesBf16 = 3;
int64_t tiles_quantized(int64_t columns) {
  return columns < 1024 ? 7 : 5;
}

RowKind row_kind_amx(const PackedMatrix::Layout& w, int64_t m) {
  switch (w.format.kind) {
    case PackedKind::f32:
      return RowKind::f32;
    case PackedKind::f16:
      return m < kTilesF16 ? RowKind::f32 : RowKind::bf16_pair;
    case PackedKind::bf16:
      return m < kTilesBf16 ? RowKind::f32 : RowKind::bf16;
    default:
      return m < tiles_quantized(w.columns) ? RowKind::int8 : RowKind::bf16;
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

// At most 16 * kA rows: the sums stay in tiles over all columns.
template <int kA, int kB>
void multiply_narrow(const MatmulPart& part, const TileJob& job, Panel& p, int64_t block) {
  zero_sums<kA, kB>();
  for (int64_t first = 0; first < job.tiles; first += kPanelTiles) {
    const int64_t left = job.tiles - first;
    const int64_t count = left < kPanelTiles ? left : kPanelTiles;
    fill_panel<kB>(*part.w, block, block + 1, first, count, p);
    multiply_panel<kA, kB, false>(job, p, part.first_row, first, count, [] {});
  }
  alignas(64) float sums[kA * kB * kTileRows * kBlockRows];
  store_sums<kA, kB>(sums);
  const int rows = static_cast<int>(part.last_row - part.first_row);
  put_sums<kA, kB>(part, sums, block, part.first_row, rows, part.store == Store::add);
}

template <int kA>
void multiply_all_narrow(const MatmulPart& part, const TileJob& job, Panel& p) {
  for (int64_t block = part.first_block; block < part.last_block; block += 2) {
    if (block + 1 < part.last_block) {
      multiply_narrow<kA, 2>(part, job, p, block);
    } else {
      multiply_narrow<kA, 1>(part, job, p, block);
    }
  }
}

void multiply_tiles(const MatmulPart& part) {
  const int64_t rows = part.last_row - part.first_row;
  if (rows > 2 * kTileRows) {
    return multiply_wide_amx(part);
  }
  if (part.w->quantized()) {
    return multiply_narrow_amx(part);
  }
  const TileJob job(*part.x);
  const TileScope scope;
  Panel p;
  if (rows <= kTileRows) {
    multiply_all_narrow<1>(part, job, p);
  } else {
    multiply_all_narrow<2>(part, job, p);
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

const MatmulKernels kAmxMatmul{
    CpuPath::amx, row_kind_amx, prepare_amx, multiply_amx, multiply_gated_amx};

}  // namespace quince::kernels
