// GGML's block formats whose groups of 32 columns share one scale, taken apart into the codes,
// scales and biases of w = scale * code + bias: the form of MLX's affine quantization. Codes are
// the file's own; scales and biases are computed in f32.
#pragma once

#include <cstdint>

#include "weights/tensor.h"

namespace quince {

// Bits of the codes that unpack_affine() gives for this type; 0 when it does not take it
// (16-column groups, code books, plain numbers).
int affine_bits(TensorType type);

inline constexpr int kAffineGroup = 32;  // columns

// One row of `columns` elements: codes[columns], scales and biases[columns / 32].
void unpack_affine(
    TensorType type,
    const std::byte* row,
    int64_t columns,
    uint8_t* codes,
    float* scales,
    float* biases);

// 8-bit codes and their scales, one for each 32 columns, nearest to the given numbers once scale
// and bias have been rounded to what `round` gives back (the type they will be held in).
void quantize_affine_8(
    const float* row,
    int64_t columns,
    float (*round)(float),
    uint8_t* codes,
    float* scales,
    float* biases);

// MLX's packing: a little-endian bit stream of `bits` a code into columns * bits / 32 words.
void pack_codes(const uint8_t* codes, int64_t columns, int bits, uint32_t* words);

}  // namespace quince
