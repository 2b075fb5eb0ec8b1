// One table of functions for each instruction set; matmul.h calls through the one that cpu.h chose.
// Tests and benchmarks reach any table that the machine can run. Private to src/kernels.
#pragma once

#include <cstdint>

#include "kernels/cpu.h"
#include "kernels/matmul.h"
#include "kernels/packed_layout.h"

namespace quince::kernels {

// Prepared rows, by kind:
//   int8       see Int8Rows
//   f32        [row][k rounded up to 32], zeros behind k
//   bf16       tiles of 16 rows x 32 columns: [row / 16][k / 32][16][32], zeros behind k and behind
//              the last row
//   bf16_pair  two such arrays: x rounded to bf16, and the rest of it rounded to bf16
inline constexpr int kTileRows = 16;
inline constexpr int kTileColumns = 32;
inline constexpr size_t kTileBytes = size_t{kTileRows} * kTileColumns * 2;

inline int64_t column_tiles(int64_t k) {
  return (k + kTileColumns - 1) / kTileColumns;
}
inline int64_t f32_stride(int64_t k) {
  return column_tiles(k) * kTileColumns;
}

// Activations of kind int8, in chunks of 32 columns: x is about scale * q. All arrays run over the
// rows of a chunk before they go on to the next chunk, so a tile of 16 rows is one piece of memory.
// sum = scale * (q[0] + ... + q[31]), half_sum the same for each 16. When one of the 32 is not
// finite, q is 0 and the floats are NaN.
struct Int8Rows {
  int8_t* q;        // [chunk][row][32]
  float* scale;     // [chunk][row]
  float* sum;       // [chunk][row]
  float* half_sum;  // [chunk][half][row]
  int64_t m;
};
inline constexpr size_t kInt8ChunkBytes = kChunk + 4 * sizeof(float);  // of one row

inline Int8Rows int8_rows(const Rows& rows) {
  const int64_t count = rows.m * (rows.k / kChunk);
  auto* floats = reinterpret_cast<float*>(rows.data + count * kChunk);
  return {reinterpret_cast<int8_t*>(rows.data), floats, floats + count, floats + 2 * count, rows.m};
}

// A part of one matmul: all of y[first_row .. last_row) x blocks [first_block .. last_block).
// first_row is a multiple of 32.
struct MatmulPart {
  const PackedMatrix::Layout* w = nullptr;
  const Rows* x = nullptr;
  float* y = nullptr;
  int64_t ldy = 0;  // floats
  Store store = Store::set;
  int64_t first_block = 0;
  int64_t last_block = 0;
  int64_t first_row = 0;
  int64_t last_row = 0;
  const std::byte* next = nullptr;  // blocks that this thread reads afterwards; null: unknown

  // What is read after `count` blocks from `block` on.
  const std::byte* after(int64_t block, int64_t count) const {
    return block + count < last_block || !next ? w->block(block + count) : next;
  }
};

// A part of one matmul_gated(): all of out[first_row .. last_row) x blocks [first_block ..
// last_block) of the gate. first_row is a multiple of 32.
struct GatedPart {
  const PackedMatrix::Layout* w = nullptr;
  const Rows* x = nullptr;
  Gate gate;
  const Rows* out = nullptr;
  int64_t first_block = 0;
  int64_t last_block = 0;
  int64_t first_row = 0;
  int64_t last_row = 0;
  int64_t next = 0;  // the block of the gate that this thread reads afterwards, or any
};

struct MatmulKernels {
  CpuPath path;
  RowKind (*row_kind)(const PackedMatrix::Layout& w, int64_t m);
  void (*prepare)(const Rows& rows, const float* x, int64_t ldx, int64_t first, int64_t last);
  void (*multiply)(const MatmulPart& part);
  // x and out of kind bf16; w quantized unless there are more than 2 * kTileRows rows.
  void (*multiply_gated)(const GatedPart& part) = nullptr;
};

// Null when this build has no code for the path.
const MatmulKernels* matmul_kernels(CpuPath path);

// matmul() of matmul.h with a given table.
void matmul_with(
    const MatmulKernels& kernels,
    Team& team,
    const PackedMatrix& w,
    const Rows& x,
    float* y,
    int64_t ldy,
    Store store);

// can_gate() and matmul_gated() with a given table.
bool can_gate_with(
    const MatmulKernels& kernels, const PackedMatrix& gate_up, const Rows& x, RowKind out);
void matmul_gated_with(
    const MatmulKernels& kernels,
    Team& team,
    const PackedMatrix& gate_up,
    const Rows& x,
    const Gate& gate,
    const Rows& out);

// The tables; those of other processors are not defined.
extern const MatmulKernels kScalarMatmul;
extern const MatmulKernels kAvx2Matmul;
extern const MatmulKernels kAvx512Matmul;
extern const MatmulKernels kAmxMatmul;
extern const MatmulKernels kNeonMatmul;
extern const MatmulKernels kI8mmMatmul;

// Portable preparation of kinds f32 and int8.
void prepare_scalar(const Rows& rows, const float* x, int64_t ldx, int64_t first, int64_t last);

}  // namespace quince::kernels
