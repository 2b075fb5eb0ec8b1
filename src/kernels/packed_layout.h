// The bytes of a PackedMatrix, known to the packer and to the kernels and to nobody else.
//
// A block is 16 output rows. Its codes come first, chunk by chunk of 32 columns, `bits` vectors of
// 64 bytes a chunk; its scales follow. Byte 4 * row + column of a vector belongs to one step of 4
// columns. Code bits lie in planes:
//   bytes    (8 bit)        8 vectors, vector s = step s
//   nibbles  (4, 5, 6 bit)  4 vectors, vector v = steps 2v (low nibble) and 2v + 1 (high)
//   pairs    (2, 3, 6 bit)  2 vectors, vector v = steps 4v .. 4v + 3, two bits each, lowest first
//   single   (3, 5 bit)     1 vector, bit s of a byte = step s
// A 5-bit code is nibble | single << 4, a 6-bit one nibble | pair << 4, a 3-bit one pair | single
// << 2.
//
// Scales of a block (groups in column order; 16 rows side by side, "x16"):
//   direct_*  per group: scale x16, then bias x16 if biased
//   k_6_6     per 256 columns (Q4_K, Q5_K): f16 d x16, f16 dmin x16; 8 x x16 bytes: low nibbles of
//             scale | min << 4 of sub-group j; 4 x x16 bytes: upper two bits of scale j, min j,
//             scale j + 4, min j + 4, lowest first
//   k_8       per 256 columns (Q6_K): 16 x x16 i8 sub-scales, f16 d x16
//   k_6       per 256 columns (Q3_K): 8 x x16 bytes: low nibbles of sub-scales j and j + 8; 4 x x16
//             bytes: upper two bits of sub-scales j, j + 4, j + 8, j + 12; f16 d x16
//   k_4_4     per 256 columns (Q2_K): 16 x x16 bytes scale | min << 4; f16 d x16, f16 dmin x16
// Dense blocks hold no scales: f32 [column][16], f16 [column][16] (an even number of columns), bf16
// [column / 2][16][2] (columns padded to 32 with zeros), the operand of an AMX tile.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/packed.h"
#include "kernels/packed_memory.h"

namespace quince::kernels {

inline constexpr int kBlockRows = 16;
inline constexpr int kChunk = 32;        // columns
inline constexpr int kSuperBlock = 256;  // columns under one super scale
inline constexpr int kVector = 64;       // bytes
inline constexpr int kSteps = 8;         // of 4 columns in a chunk

enum class ScalePlan : uint8_t {
  none,
  direct_f16,
  direct_bf16,
  direct_f32,
  k_6_6,
  k_8,
  k_6,
  k_4_4
};

struct PackedMatrix::Layout {
  int64_t rows = 0;
  int64_t columns = 0;
  PackedFormat format;
  ScalePlan plan = ScalePlan::none;
  int zero = 0;             // w = scale * (code - zero) when not biased
  int64_t blocks = 0;       // of 16 rows, the last one padded with zeros
  size_t scale_offset = 0;  // of the scales in a block, bytes
  size_t block_bytes = 0;   // a multiple of 64
  PackedMemory memory;      // 64-byte aligned

  bool quantized() const {
    return plan != ScalePlan::none;
  }
  int64_t chunks() const {
    return columns / kChunk;
  }
  size_t chunk_bytes() const {
    return static_cast<size_t>(format.bits) * kVector;
  }
  const std::byte* block(int64_t i) const {
    return memory.data() + static_cast<size_t>(i) * block_bytes;
  }
  // Output rows of block i: 16 but for the last.
  int block_rows(int64_t i) const {
    const int64_t left = rows - i * kBlockRows;
    return left < kBlockRows ? static_cast<int>(left) : kBlockRows;
  }
};

// Bytes of one group's or one super block's scales in a block of 16 rows.
size_t scale_unit_bytes(ScalePlan plan, bool biased);

// The layout of a matrix of this size, without memory. Sets blocks, scale_offset, block_bytes.
void place(PackedMatrix::Layout& layout);

}  // namespace quince::kernels
