// Quantizing a dense matrix, for conversion.
#pragma once

#include <optional>

#include <mlx/array.h>

#include "quant/matrix_source.h"

namespace quince {

struct QuantizedMatrix {
  mlx::core::array codes;                  // u32 [rows, columns * bits / 32]
  mlx::core::array scales;                 // [rows, columns / group]
  std::optional<mlx::core::array> biases;  // as scales; mode "affine" only
};

// Whether a matrix of so many columns can be held in this layout.
bool can_quantize(int64_t columns, const MlxLayout& layout);

// Exactly what mlx.core.quantize gives for w [rows, columns] (f32, f16 or bf16). Evaluated. Throws
// UserError when can_quantize() is false.
QuantizedMatrix quantize(const mlx::core::array& w, const MlxLayout& layout);

}  // namespace quince
