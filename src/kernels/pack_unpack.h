// Packed blocks back to codes and float scales: portable code, shared by PackedMatrix::unpack_row,
// the scalar kernels and the tests.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/packed_layout.h"

namespace quince::kernels {

// Codes of all 16 rows of one chunk: out[step * 64 + row * 4 + column].
void unpack_chunk(int bits, const std::byte* chunk, uint8_t* out);

// The 32 codes of one row (lane 0-15) of a chunk.
void unpack_lane(int bits, const std::byte* chunk, int lane, uint8_t* codes);

// Groups of 16 columns have two scales a chunk, all others one.
inline int scales_per_chunk(const PackedMatrix::Layout& w) {
  return w.format.group == 16 ? 2 : 1;
}

// Scale and bias of `count` chunks from `first`, as floats: scale[(chunk * scales_per_chunk + half)
// * 16
// + row]. Bias is 0 for formats without one; with fold_zero it is -zero * scale instead, so that
// always w = scale * code + bias.
void expand_scales(
    const PackedMatrix::Layout& w,
    const std::byte* block,
    int64_t first,
    int64_t count,
    bool fold_zero,
    float* scale,
    float* bias);

}  // namespace quince::kernels
