// Quantized weights times 8-bit activations with VNNI; internal to the avx512 and amx tables.
#pragma once

#include "kernels/matmul_kernels.h"

namespace quince::kernels {

// w quantized, x of kind int8.
void multiply_int8_avx512(const MatmulPart& part);

// w dense, x of kind f32.
void multiply_f32_avx512(const MatmulPart& part);

// Kinds int8 and f32.
void prepare_avx512(const Rows& rows, const float* x, int64_t ldx, int64_t first, int64_t last);

}  // namespace quince::kernels
