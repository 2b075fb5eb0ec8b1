// Packed blocks back to codes and float scales: portable code, shared by PackedMatrix::unpack_row,
// the scalar kernels and the tests.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/packed_layout.h"

namespace quince::kernels {

// Codes of all 16 rows of one chunk: out[step * 64 + row * 4 + column].
void unpack_chunk(int bits, const std::byte* chunk, uint8_t* out);

// Groups of 16 columns have two scales a chunk, all others one.
inline int scales_per_chunk(const PackedMatrix::Layout& w) {
  return w.format.group == 16 ? 2 : 1;
}

// Scales and biases of a chunk, [half][16 rows], such that w = scale * code + bias (so the bias of
// a format without one is -zero * scale).
void expand_scales(
    const PackedMatrix::Layout& w,
    const std::byte* block,
    int64_t chunk,
    float* scale,
    float* bias);

// The 32 weights of row 0-15 of a chunk, as the format defines them to the bit.
void unpack_floats(
    const PackedMatrix::Layout& w, const std::byte* block, int64_t chunk, int row, float* out);

}  // namespace quince::kernels
