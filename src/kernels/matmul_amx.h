// Activation rows on tiles; internal to the amx table.
#pragma once

#include "kernels/matmul_kernels.h"

namespace quince::kernels {

// x of kind bf16, w quantized, at most 2 * kTileRows rows.
void multiply_narrow_amx(const MatmulPart& part);

// x of kind bf16 or bf16_pair.
void multiply_wide_amx(const MatmulPart& part);
void multiply_gated_amx(const GatedPart& part);
// The same of at most 2 * kTileRows rows, w quantized.
void multiply_gated_narrow_amx(const GatedPart& part);

}  // namespace quince::kernels
