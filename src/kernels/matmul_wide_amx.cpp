// More than 32 activation rows. Weights of 32 outputs become bf16 tiles in a panel that stays in
// the first cache, all rows of activations pass over it from the second one, and the finished sums
// of two tiles of rows are turned into results while the next two multiply.
#include "kernels/matmul_amx.h"
#include "kernels/matmul_gate_amx.h"
#include "kernels/matmul_panel_amx.h"

namespace quince::kernels {

namespace {

// Activations that may be passed over again for every 32 outputs.
constexpr int64_t kActivationBytes = int64_t{1} << 20;
// Rows that pass together; their sums lie on the stack.
constexpr int64_t kMostRows = 512;
constexpr int64_t kFewestRows = 128;  // fewer would make weights a large part of the work again
constexpr int64_t kStep = 2 * kTileRows;

// What becomes of a row of sums: 16 of one block, and 16 of another kBlockSums behind them.

// Neighbouring blocks of y.
template <int kB>
struct PutRows {
  float* y;  // at the first block
  int64_t ldy;
  int last;  // columns of the last block that exist
  Store store;

  void operator()(const float* sums, int64_t row) const {
    float* to = y + row * ldy;
    if constexpr (kB == 2) {
      store_row(to, _mm512_load_ps(sums), kBlockRows, store);
      to += kBlockRows;
      sums += kBlockSums;
    }
    store_row(to, _mm512_load_ps(sums), last, store);
  }
};

// Finished sums that are turned into results a few rows at a time.
template <int kB, typename Put>
struct Pending {
  const Put& put;
  const float* sums = nullptr;
  int64_t row = 0;
  int rows = 0;
  int done = 0;

  void work(int count) {
    const int end = done + count < rows ? done + count : rows;
    for (; done < end; ++done) {
      put(sums + (done / kTileRows * kB * kTileRows + done % kTileRows) * kBlockRows, row + done);
    }
  }
};

// Columns of activations that one pass takes, in tiles, and how many of them a panel takes.
struct Stripe {
  int64_t begin;
  int64_t end;
  int64_t panel;
};

// Panels of equal size, unless super blocks say where they begin. A pair fills twice the memory.
int64_t panel_tiles(int64_t tiles, bool pair) {
  const int64_t most = pair ? kPanelTiles : kWidePanelTiles;
  if (tiles > most && tiles % kWindow == 0) {
    return most / kWindow * kWindow;
  }
  const int64_t panels = (tiles + most - 1) / most;
  return (tiles + panels - 1) / panels;
}

// Which two blocks (the second unused when kB is 1) and which rows a pass is about.
struct Pass {
  const PackedMatrix::Layout& w;
  int64_t first_block;
  int64_t second_block;
  int64_t first_row;
  int64_t last_row;  // at most kMostRows from the first
};

// Up to 32 rows from `row` times the panel of columns [first, first + count) of a stripe. sums: of
// these rows, from panel to panel.
template <int kA, int kB, typename Put>
void multiply_rows(
    const TileJob& job,
    const Panel& p,
    const Stripe& stripe,
    int64_t first,
    int64_t count,
    int64_t row,
    float* sums,
    Pending<kB, Put>& pending) {
  if (first == stripe.begin) {
    zero_sums<kA, kB>();
  } else {
    load_sums<kA, kB>(sums);
  }
  const int some = static_cast<int>((kStep + count - 1) / count);
  multiply_panel<kA, kB, true>(job, p, row, first, count, [&] { pending.work(some); });
  store_sums<kA, kB>(sums);
}

// One stripe of the pass. Sums go from panel to panel in scratch memory, not in the results: rows
// of y are often a multiple of 4 KB apart, so that all would compete for the same few places in the
// caches.
template <int kB, typename Put>
void multiply_pass(
    const TileJob& job, Panel& p, const Stripe& stripe, const Pass& pass, const Put& put) {
  alignas(64) float sums[kMostRows * kBlockRows * kB];
  constexpr int kSlot = static_cast<int>(kStep) * kBlockRows * kB;
  Pending<kB, Put> pending{put};
  for (int64_t first = stripe.begin; first < stripe.end; first += stripe.panel) {
    const int64_t left = stripe.end - first;
    const int64_t count = left < stripe.panel ? left : stripe.panel;
    const bool finished = first + count == stripe.end;
    const bool only = finished && first == stripe.begin;  // sums need not stay: two slots will do
    fill_panel<kB>(pass.w, pass.first_block, pass.second_block, first, count, p);
    int slot = 0;
    for (int64_t row = pass.first_row; row < pass.last_row; row += kStep) {
      const int64_t rows = pass.last_row - row < kStep ? pass.last_row - row : kStep;
      float* row_sums = sums + slot * kSlot;
      if (rows > kTileRows) {
        multiply_rows<2, kB>(job, p, stripe, first, count, row, row_sums, pending);
      } else {
        multiply_rows<1, kB>(job, p, stripe, first, count, row, row_sums, pending);
      }
      slot = only ? 1 - slot : slot + 1;
      if (finished) {
        pending.work(static_cast<int>(kStep));  // what is left of the ones before
        pending.sums = row_sums;
        pending.row = row;
        pending.rows = static_cast<int>(rows);
        pending.done = 0;
      }
    }
  }
  pending.work(static_cast<int>(kStep));
}

int64_t clamp(int64_t value, int64_t low, int64_t high) {
  return value < low ? low : (value > high ? high : value);
}

// Rows that pass at once. Activations should stay in the second cache while panels pass, so not too
// many.
int64_t rows_at_once(const TileJob& job, int64_t m) {
  const int64_t row_bytes = kTileColumns * 2 * (job.pair ? 2 : 1) * job.tiles;
  const int64_t most = clamp(kActivationBytes / row_bytes / kStep * kStep, kFewestRows, kMostRows);
  const int64_t passes = (m + most - 1) / most;
  return ((m + passes - 1) / passes + kStep - 1) / kStep * kStep;
}

template <int kB>
void put_rows(
    const MatmulPart& part, const TileJob& job, Panel& p, const Stripe& stripe, const Pass& pass) {
  const PutRows<kB> put{
      part.y + pass.first_block * kBlockRows,
      part.ldy,
      part.w->block_rows(pass.first_block + kB - 1),
      stripe.begin > 0 ? Store::add : part.store};
  multiply_pass<kB>(job, p, stripe, pass, put);
}

template <GateActivation kActivation>
void put_gated(const GatedPart& part) {
  const PackedMatrix::Layout& w = *part.w;
  const TileJob job(*part.x);
  const Stripe whole{0, job.tiles, panel_tiles(job.tiles, false)};
  const int64_t step = rows_at_once(job, part.last_row - part.first_row);
  Panel p;
  for (int64_t row = part.first_row; row < part.last_row; row += step) {
    for (int64_t block = part.first_block; block < part.last_block; ++block) {
      const PutGated<kActivation> put(part, block);
      // Whole tiles of rows: what is behind the last one is computed from zeros.
      const int64_t last = clamp(row + step, row, part.last_row);
      const Pass pass{
          w, block, up_block(w, block), row, (last + kTileRows - 1) / kTileRows * kTileRows};
      multiply_pass<2>(job, p, whole, pass, put);
    }
  }
}

}  // namespace

void multiply_wide_amx(const MatmulPart& part) {
  const TileJob job(*part.x);
  const int64_t row_tile_bytes = kTileColumns * 2 * (job.pair ? 2 : 1);
  const int64_t rows = rows_at_once(job, part.last_row - part.first_row);
  // If the fewest rows are still too many, not all columns at once.
  const int64_t width = clamp(
      kActivationBytes / (row_tile_bytes * rows) / kPanelTiles * kPanelTiles,
      kPanelTiles,
      job.tiles);
  const TileScope scope;
  Panel p;
  for (int64_t row = part.first_row; row < part.last_row; row += rows) {
    for (int64_t begin = 0; begin < job.tiles; begin += width) {
      const int64_t end = clamp(begin + width, begin, job.tiles);
      const Stripe stripe{begin, end, panel_tiles(end - begin, job.pair)};
      for (int64_t block = part.first_block; block < part.last_block; block += 2) {
        const Pass pass{*part.w, block, block + 1, row, clamp(row + rows, row, part.last_row)};
        if (block + 1 < part.last_block) {
          put_rows<2>(part, job, p, stripe, pass);
        } else {
          put_rows<1>(part, job, p, stripe, pass);
        }
      }
    }
  }
}

void multiply_gated_amx(const GatedPart& part) {
  if (part.w->quantized() && part.last_row - part.first_row <= kStep) {
    return multiply_gated_narrow_amx(part);
  }
  const TileScope scope;
  switch (part.gate.activation) {
    case GateActivation::silu:
      return put_gated<GateActivation::silu>(part);
    case GateActivation::gelu_tanh:
      return put_gated<GateActivation::gelu_tanh>(part);
    case GateActivation::gelu:
      return put_gated<GateActivation::gelu>(part);
  }
}

}  // namespace quince::kernels
