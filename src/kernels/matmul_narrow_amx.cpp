// At most 32 activation rows: the sums of two blocks stay in tiles over all columns, and weights
// become tiles a chunk at a time while the chunk before multiplies.
#include "kernels/matmul_amx.h"
#include "kernels/matmul_gate_amx.h"
#include "kernels/matmul_panel_amx.h"

namespace quince::kernels {

namespace {

// Weight tiles between being made and being multiplied: what vector stores wrote a tile load gets
// only from the cache, where it has to arrive first.
constexpr int64_t kLag = 2;
constexpr int64_t kRing = 4;

struct Ring {
  alignas(64) std::byte tiles[kRing][2][kTileBytes];

  std::byte* at(int64_t chunk, int block) {
    return tiles[chunk % kRing][block];
  }
};

// The lines that results go to, which another processor has read last: asked for a few at a time
// while there is work, since all later stores would wait for them. Put::ask(row) asks.
template <typename Put>
class ResultLines {
 public:
  ResultLines(const Put& put, int64_t rows, int64_t chunks)
      : put_(put), rows_(rows), at_once_((rows + chunks - 1) / chunks) {}

  void ask() {
    for (int64_t i = 0; i < at_once_ && asked_ < rows_; ++i) {
      put_.ask(asked_++);
    }
  }

 private:
  const Put& put_;
  int64_t rows_;
  int64_t at_once_;  // rows a chunk
  int64_t asked_ = 0;
};

// Two neighbouring blocks, or one, of y.
class PutBlocks {
 public:
  PutBlocks(const MatmulPart& part, int64_t block, int count)
      : y_(part.y + part.first_row * part.ldy + block * kBlockRows),
        ldy_(part.ldy),
        store_(part.store),
        count_(count),
        last_(part.w->block_rows(block + count - 1)) {}

  void ask(int64_t row) const {
    __builtin_prefetch(y_ + row * ldy_, 1, 3);
    __builtin_prefetch(y_ + row * ldy_ + kBlockRows, 1, 3);
  }

  void operator()(const float* sums, int64_t row) const {
    float* y = y_ + row * ldy_;
    if (count_ == 2) {
      store_row(y, _mm512_load_ps(sums), kBlockRows, store_);
      y += kBlockRows;
      sums += kBlockSums;
    }
    store_row(y, _mm512_load_ps(sums), last_, store_);
  }

 private:
  float* y_;
  int64_t ldy_;
  Store store_;
  int count_;
  int last_;  // columns of the last block that exist
};

// A block of gates and one of ups.
template <GateActivation kActivation>
class PutGate {
 public:
  PutGate(const GatedPart& part, int64_t block) : put_(part, block), row_(part.first_row) {}

  void ask(int64_t row) const {
    __builtin_prefetch(put_.at(row_ + row), 1, 3);
  }

  void operator()(const float* sums, int64_t row) const {
    put_(sums, row_ + row);
  }

 private:
  PutGated<kActivation> put_;
  int64_t row_;
};

// Activations of a few columns from now on, to the first cache.
inline void ask_tile(const std::byte* tile) {
  for (int i = 0; i < kTileRows; ++i) {
    __builtin_prefetch(tile + i * kVector, 0, 3);
  }
}

// Two blocks, which may be the same one, and those that are read after them.
struct TwoBlocks {
  const std::byte* now[2];
  const std::byte* next[2];
};

template <int kBits, int kGroup, int kA, typename Put>
void sum_blocks(
    const PackedMatrix::Layout& w,
    const TwoBlocks& blocks,
    const TileJob& job,
    int64_t row,
    ResultLines<Put> results,
    float* sums) {
  Ring ring;
  ScaleWindow windows[2];
  const Ahead ahead(w);
  const int64_t chunks = w.chunks();
  const auto multiply = [&](int64_t n) {
    TileRun run{};
    run.a0 = job.tile(row, n);
    run.a1 = kA == 2 ? job.tile(row + kTileRows, n) : nullptr;
    run.b0 = ring.at(n, 0);
    run.b1 = ring.at(n, 1);
    run.tiles = 1;
    add_products<kA, 2, kA == 2>(run, [] {});
  };
  zero_sums<kA, 2>();
  for (int64_t first = 0; first < chunks; first += kWindow) {
    const int count = chunks - first < kWindow ? static_cast<int>(chunks - first) : kWindow;
    for (int b = 0; b < 2; ++b) {
      expand_window(w, blocks.now[b], first, count, windows[b]);
    }
    for (int c = 0; c < count; ++c) {
      const int64_t n = first + c;
      for (int b = 0; b < 2; ++b) {
        ahead.ask<kBits>(blocks.now[b], blocks.next[b], n);
        dequant_chunk<kBits, kGroup>(
            blocks.now[b] + n * (kBits * kVector), windows[b], c, ring.at(n, b));
      }
      results.ask();
      for (int a = 0; a < kA; ++a) {
        ask_tile(job.tile(row + a * kTileRows, n));
      }
      if (n >= kLag) {
        multiply(n - kLag);
      }
    }
  }
  for (int64_t n = chunks < kLag ? 0 : chunks - kLag; n < chunks; ++n) {
    multiply(n);
  }
  store_sums<kA, 2>(sums);
}

// Sums of two blocks over `rows` rows, each handed to put.
template <int kBits, int kGroup, int kA, typename Put>
void multiply_two(
    const PackedMatrix::Layout& w,
    const TwoBlocks& blocks,
    const TileJob& job,
    int64_t first_row,
    int64_t rows,
    const Put& put) {
  alignas(64) float sums[kA * 2 * kBlockSums];
  const ResultLines<Put> results(put, rows, w.chunks());
  sum_blocks<kBits, kGroup, kA>(w, blocks, job, first_row, results, sums);
  for (int64_t i = 0; i < rows; ++i) {
    put(sums + (i / kTileRows * 2 * kTileRows + i % kTileRows) * kBlockRows, i);
  }
}

template <int kBits, int kGroup, int kA>
void multiply_blocks(const MatmulPart& part) {
  const PackedMatrix::Layout& w = *part.w;
  const TileJob job(*part.x);
  const TileScope scope;
  for (int64_t first = part.first_block; first < part.last_block; first += 2) {
    const int count = part.last_block - first < 2 ? 1 : 2;
    const std::byte* next = part.after(first, 2);
    const TwoBlocks blocks{
        {w.block(first), w.block(first + count - 1)}, {next, next + w.block_bytes}};
    multiply_two<kBits, kGroup, kA>(
        w,
        blocks,
        job,
        part.first_row,
        part.last_row - part.first_row,
        PutBlocks(part, first, count));
  }
}

template <int kBits, int kGroup, int kA, GateActivation kActivation>
void gate_blocks(const GatedPart& part) {
  const PackedMatrix::Layout& w = *part.w;
  const TileJob job(*part.x);
  const TileScope scope;
  for (int64_t block = part.first_block; block < part.last_block; ++block) {
    const int64_t next = block + 1 < part.last_block ? block + 1 : part.next;
    const TwoBlocks blocks{
        {w.block(block), w.block(up_block(w, block))}, {w.block(next), w.block(up_block(w, next))}};
    // Whole tiles of rows: what is behind the last one is computed from zeros.
    multiply_two<kBits, kGroup, kA>(
        w, blocks, job, part.first_row, kA * kTileRows, PutGate<kActivation>(part, block));
  }
}

template <int kBits, int kGroup, int kA>
void multiply_rows(const MatmulPart& part) {
  multiply_blocks<kBits, kGroup, kA>(part);
}

template <int kBits, int kGroup, int kA>
void multiply_rows(const GatedPart& part) {
  switch (part.gate.activation) {
    case GateActivation::silu:
      return gate_blocks<kBits, kGroup, kA, GateActivation::silu>(part);
    case GateActivation::gelu_tanh:
      return gate_blocks<kBits, kGroup, kA, GateActivation::gelu_tanh>(part);
    case GateActivation::gelu:
      return gate_blocks<kBits, kGroup, kA, GateActivation::gelu>(part);
  }
}

template <int kBits, int kGroup, typename Part>
void multiply_format(const Part& part) {
  if (part.last_row - part.first_row <= kTileRows) {
    multiply_rows<kBits, kGroup, 1>(part);
  } else {
    multiply_rows<kBits, kGroup, 2>(part);
  }
}

template <typename Part>
void multiply_any(const Part& part) {
  const bool small = part.w->format.group == 16;
  switch (part.w->format.bits) {
    case 2:
      return small ? multiply_format<2, 16>(part) : multiply_format<2, 32>(part);
    case 3:
      return small ? multiply_format<3, 16>(part) : multiply_format<3, 32>(part);
    case 4:
      return multiply_format<4, 32>(part);
    case 5:
      return multiply_format<5, 32>(part);
    case 6:
      return small ? multiply_format<6, 16>(part) : multiply_format<6, 32>(part);
    default:
      return multiply_format<8, 32>(part);
  }
}

}  // namespace

void multiply_narrow_amx(const MatmulPart& part) {
  multiply_any(part);
}

void multiply_gated_narrow_amx(const GatedPart& part) {
  multiply_any(part);
}

}  // namespace quince::kernels
