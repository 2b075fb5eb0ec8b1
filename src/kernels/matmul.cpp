#include "kernels/matmul.h"

#include <algorithm>

#include "kernels/cpu.h"
#include "kernels/matmul_ahead.h"
#include "kernels/matmul_kernels.h"

namespace quince::kernels {

namespace {

const MatmulKernels& chosen() {
  static const MatmulKernels& kernels = [&]() -> const MatmulKernels& {
    const MatmulKernels* found = matmul_kernels(detect());
    return found ? *found : kScalarMatmul;
  }();
  return kernels;
}

}  // namespace

const MatmulKernels* matmul_kernels(CpuPath path) {
  switch (path) {
    case CpuPath::scalar:
      return &kScalarMatmul;
#if defined(__x86_64__)
    case CpuPath::avx2:
      return &kAvx2Matmul;
    case CpuPath::avx512:
      return &kAvx512Matmul;
    case CpuPath::amx:
      return &kAmxMatmul;
#elif defined(__aarch64__)
    case CpuPath::neon:
      return &kNeonMatmul;
    case CpuPath::i8mm:
      return &kI8mmMatmul;
#endif
    default:
      return nullptr;
  }
}

RowKind row_kind(const PackedMatrix& w, int64_t m) {
  return chosen().row_kind(w.layout(), m);
}

size_t prepared_bytes(RowKind kind, int64_t m, int64_t k) {
  const auto tiles = static_cast<size_t>((m + kTileRows - 1) / kTileRows * column_tiles(k));
  switch (kind) {
    case RowKind::f32:
      return static_cast<size_t>(m * f32_stride(k)) * sizeof(float);
    case RowKind::int8:
      // Kernels read floats of a whole tile of rows, so up to 15 behind the last.
      return static_cast<size_t>(m * (k / kChunk)) * kInt8ChunkBytes + kVector;
    case RowKind::bf16:
      return tiles * kTileBytes;
    case RowKind::bf16_pair:
      return 2 * tiles * kTileBytes;
  }
  return 0;
}

void prepare(const Rows& rows, const float* x, int64_t ldx, int64_t first, int64_t last) {
  chosen().prepare(rows, x, ldx, first, last);
}

namespace {

// Of prepared activations that pass by again and again, once for each block of weights: they should
// stay in the second cache.
constexpr size_t kPassBytes = size_t{768} << 10;
// Pieces of blocks that are handed out one by one, in packed bytes: a few microseconds each.
constexpr size_t kPieceBytes = size_t{32} << 10;
constexpr int64_t kPair = 2;  // blocks; the kernels like pairs
constexpr int64_t kFewRows = 32;

// The output columns of one member, and the rows when there are too few columns for all.
struct Share {
  int64_t first_block;
  int64_t last_block;
  int64_t first_row;
  int64_t last_row;
};

// Splits the blocks, and with many members and many rows the rows too.
Share share_of(const Team& team, int64_t blocks, int64_t m) {
  constexpr int64_t kRowsApart = 32;
  const int64_t pairs = (blocks + kPair - 1) / kPair;
  int64_t row_parts = 1;
  while (team.size() % (2 * row_parts) == 0 && pairs * row_parts < 4 * team.size() &&
         m / (2 * row_parts) >= 2 * kRowsApart) {
    row_parts *= 2;
  }
  const int64_t columns = team.size() / row_parts;
  const int64_t column = team.rank() / row_parts;
  const int64_t row = team.rank() % row_parts;
  const int64_t tiles = (m + kRowsApart - 1) / kRowsApart;
  return {
      std::min(blocks, pairs * column / columns * kPair),
      std::min(blocks, pairs * (column + 1) / columns * kPair),
      std::min(m, tiles * row / row_parts * kRowsApart),
      std::min(m, tiles * (row + 1) / row_parts * kRowsApart)};
}

// All activation rows of the part, in passes of as many as stay in the cache.
void multiply_rows(const MatmulKernels& kernels, MatmulPart part) {
  const int64_t last = part.last_row;
  int64_t step = last - part.first_row;
  if (part.x->kind == RowKind::f32 || part.x->kind == RowKind::int8) {  // tiles do it themselves
    const size_t row_bytes = prepared_bytes(part.x->kind, 1, part.x->k);
    step = std::max<int64_t>(32, static_cast<int64_t>(kPassBytes / row_bytes) / 32 * 32);
  }
  for (int64_t row = part.first_row; row < last; row += step) {
    part.first_row = row;
    part.last_row = std::min(last, row + step);
    kernels.multiply(part);
  }
}

// Blocks that each member does in any case.
int64_t own_blocks(const Team& team, int64_t blocks) {
  return blocks * 3 / 4 / team.size() / kPair * kPair;
}

// Calls work(first, last, next) for ranges of blocks. Each member does three quarters of an equal
// share, and what is left goes in small pieces to whoever is done first: a member that was
// interrupted does not hold up the others. next: where the following range begins, known in time
// to ask memory for it; `blocks` or more when there is none.
template <typename Work>
void share_blocks(Team& team, int64_t blocks, int64_t piece, const Work& work) {
  const int64_t own = own_blocks(team, blocks);
  const auto take = [&] { return own * team.size() + team.next() * piece; };
  int64_t next = take();
  if (own > 0) {
    work(own * team.rank(), own * (team.rank() + 1), next);
  }
  while (next < blocks) {
    const int64_t first = next;
    next = take();
    work(first, std::min(blocks, first + piece), next);
  }
}

// Whether many rows go in pieces too: all rows pass by for each piece, so they must stay in the
// second cache.
bool in_pieces(const Team& team, int64_t blocks, const Rows& x) {
  constexpr size_t kStays = size_t{1} << 20;
  return team.size() > 1 && blocks >= 4 * kPair * team.size() &&
         prepared_bytes(x.kind, x.m, x.k) <= kStays;
}

}  // namespace

void matmul_with(
    const MatmulKernels& kernels,
    Team& team,
    const PackedMatrix& w,
    const Rows& x,
    float* y,
    int64_t ldy,
    Store store) {
  const PackedMatrix::Layout& layout = w.layout();
  MatmulPart part{&layout, &x, y, ldy, store, 0, layout.blocks, 0, x.m};
  if (x.m == 0 || layout.blocks == 0) {
    return;
  }
  if ((x.m <= kFewRows && team.size() > 1) || in_pieces(team, layout.blocks, x)) {
    // Few rows: reading the weights is the work.
    const auto few = static_cast<int64_t>(kPieceBytes / layout.block_bytes) / kPair * kPair;
    const int64_t piece = x.m <= kFewRows ? std::max(kPair, few) : kPair;
    return share_blocks(team, layout.blocks, piece, [&](int64_t first, int64_t last, int64_t next) {
      part.first_block = first;
      part.last_block = last;
      part.next = next < layout.blocks ? layout.block(next) : nullptr;
      multiply_rows(kernels, part);
    });
  }
  const Share share = share_of(team, layout.blocks, x.m);
  part.first_block = share.first_block;
  part.last_block = share.last_block;
  part.first_row = share.first_row;
  part.last_row = share.last_row;
  if (part.first_block < part.last_block && part.first_row < part.last_row) {
    multiply_rows(kernels, part);
  }
}

void ask_ahead(const Team& team, const PackedMatrix& w, int64_t m) {
  const PackedMatrix::Layout& layout = w.layout();
  if (m > kFewRows || !layout.quantized()) {
    return;
  }
  const auto ask = [](const std::byte* from, size_t bytes) {
    for (size_t i = 0; i < bytes; i += kVector) {
      __builtin_prefetch(from + i, 0, 2);
    }
  };
  // As much as kernels ask ahead themselves.
  const auto chunks = static_cast<size_t>(layout.chunks());
  const size_t some = std::min<size_t>(Ahead::kChunks, chunks);
  const int64_t first = own_blocks(team, layout.blocks) * team.rank();
  for (int64_t block = first; block < std::min(layout.blocks, first + kPair); ++block) {
    const std::byte* data = layout.block(block);
    ask(data, some * layout.chunk_bytes());
    ask(data + layout.scale_offset, (layout.block_bytes - layout.scale_offset) * some / chunks);
  }
}

void matmul(Team& team, const PackedMatrix& w, const Rows& x, float* y, int64_t ldy, Store store) {
  matmul_with(chosen(), team, w, x, y, ldy, store);
}

bool can_gate_with(
    const MatmulKernels& kernels, const PackedMatrix& gate_up, const Rows& x, RowKind out) {
  return kernels.multiply_gated && x.kind == RowKind::bf16 && out == RowKind::bf16 &&
         (x.m > kFewRows || gate_up.layout().quantized()) &&
         gate_up.rows() % (2 * kTileColumns) == 0;
}

void matmul_gated_with(
    const MatmulKernels& kernels,
    Team& team,
    const PackedMatrix& gate_up,
    const Rows& x,
    const Gate& gate,
    const Rows& out) {
  const PackedMatrix::Layout& layout = gate_up.layout();
  const int64_t blocks = layout.blocks / 2;
  GatedPart part{&layout, &x, gate, &out, 0, blocks, 0, x.m};
  if ((x.m <= kFewRows && team.size() > 1) || in_pieces(team, blocks, x)) {
    return share_blocks(team, blocks, kPair, [&](int64_t first, int64_t last, int64_t next) {
      part.first_block = first;
      part.last_block = last;
      part.next = std::min(next, blocks - 1);
      kernels.multiply_gated(part);
    });
  }
  const Share share = share_of(team, blocks, x.m);
  part.first_block = share.first_block;
  part.last_block = share.last_block;
  part.first_row = share.first_row;
  part.last_row = share.last_row;
  if (part.first_block < part.last_block && part.first_row < part.last_row) {
    kernels.multiply_gated(part);
  }
}

bool can_gate(const PackedMatrix& gate_up, const Rows& x, RowKind out) {
  return can_gate_with(chosen(), gate_up, x, out);
}

void matmul_gated(
    Team& team, const PackedMatrix& gate_up, const Rows& x, const Gate& gate, const Rows& out) {
  matmul_gated_with(chosen(), team, gate_up, x, gate, out);
}

}  // namespace quince::kernels
