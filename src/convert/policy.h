// Who decides in which form a matrix is written. A policy is a function, so that later ones (mixed
// precision by layer, bits found by measuring quality and asking again) need no change elsewhere.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "quant/matrix_source.h"
#include "weights/tensor.h"

namespace quince {

// One matrix of the model, as the policy sees it.
struct MatrixInfo {
  std::string path;  // "model.layers.0.mlp.down_proj"
  int64_t rows = 0;
  int64_t columns = 0;
  TensorType type = TensorType::f32;  // in the file; u32 for MLX's packed form
  std::optional<MlxLayout> layout;    // of MLX's packed form
  // MLX's form with the file's own codes, when there is one (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K,
  // Q5_K, and MLX's own); its scales are the file's up to rounding to the scales' type.
  std::optional<MlxLayout> same_codes;
};

struct Decision {
  std::optional<MlxLayout> layout;  // nothing: plain
  std::string exception;            // why this is not what was asked for; empty: it is
};

using QuantPolicy = std::function<Decision(const MatrixInfo&)>;

// Quantized stays quantized, in MLX's form: the file's own codes where MLX has them, else 8 bits in
// groups of 32 (K-quants with groups of 16, code books). Plain stays plain.
QuantPolicy keep_policy();

// Everything becomes plain.
QuantPolicy dequantize_policy();

// Every matrix in this layout. Where the width is no multiple of the group, the next smaller group
// that MLX has; where there is none, plain. Both are exceptions.
QuantPolicy uniform_policy(MlxLayout layout);

// "4-bit g64", "mxfp4".
std::string describe(const MlxLayout& layout);
bool operator==(const MlxLayout& a, const MlxLayout& b);

}  // namespace quince
