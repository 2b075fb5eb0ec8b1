#include "kernels/matmul.h"

#include <algorithm>

#include "kernels/cpu.h"
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

void matmul_with(
    const MatmulKernels& kernels,
    Team& team,
    const PackedMatrix& w,
    const Rows& x,
    float* y,
    int64_t ldy,
    Store store) {
  const PackedMatrix::Layout& layout = w.layout();
  MatmulPart part{&layout, &x, y, ldy, store, 0, 0, 0, x.m};
  const int64_t size = team.size();
  const int64_t step = 2;  // blocks; kernels like pairs
  const int64_t steps = (layout.blocks + step - 1) / step;
  part.first_block = std::min(layout.blocks, steps * team.rank() / size * step);
  part.last_block = std::min(layout.blocks, steps * (team.rank() + 1) / size * step);
  if (part.first_block < part.last_block && x.m > 0) {
    kernels.multiply(part);
  }
}

void matmul(Team& team, const PackedMatrix& w, const Rows& x, float* y, int64_t ldy, Store store) {
  matmul_with(chosen(), team, w, x, y, ldy, store);
}

}  // namespace quince::kernels
