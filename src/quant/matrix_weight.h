// A weight matrix [out, in] as MLX computes with it: dense, or packed by MLX's quantization. Layers
// use it without asking which. One thread; arrays are evaluated.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <mlx/array.h>

#include "quant/matrix_source.h"
#include "quant/options.h"

namespace quince {

class MatrixWeight {
 public:
  // Brings a matrix into MLX's form:
  //   F32, F16, BF16        dense of `type`, without a copy where type and MLX's allocator allow it
  //   MLX triples           as they are; affine scales and biases in `type`
  //   Q4_0 Q4_1 Q5_0 Q5_1   their codes, groups of 32
  //   Q8_0 Q4_K Q5_K        their codes, groups of 32
  //   MXFP4                 its codes, mode mxfp4
  //   other block types     8 bits, groups of 32
  //   F64, F8, integers     dense of `type`
  // options.dequantize makes all of them dense. `type` is the type of activations.
  static MatrixWeight load(
      const MatrixSource& source, mlx::core::Dtype type, const LoadOptions& options);

  explicit MatrixWeight(mlx::core::array dense);
  MatrixWeight(
      mlx::core::array codes,
      mlx::core::array scales,
      std::optional<mlx::core::array> biases,
      MlxLayout layout);

  // x [..., in] -> [..., out]; with bias [out] added when given.
  mlx::core::array matmul(
      const mlx::core::array& x, const std::optional<mlx::core::array>& bias = std::nullopt) const;
  // Rows of the matrix by number: ids [N] -> [N, in].
  mlx::core::array take_rows(const mlx::core::array& ids) const;
  mlx::core::array dequantize() const;  // [out, in]

  bool quantized() const {
    return layout_.has_value();
  }
  size_t bytes() const;
  // "bf16", "4-bit g32", "mxfp4": what is held.
  std::string describe() const;

 private:
  mlx::core::array weight_;                     // [out, in] dense, or codes
  std::optional<mlx::core::array> transposed_;  // dense: a view of weight_
  std::optional<mlx::core::array> scales_;
  std::optional<mlx::core::array> biases_;
  std::optional<MlxLayout> layout_;
};

// A whole tensor as a dense array of `type`, decoded when it is held in another type.
mlx::core::array load_dense(
    const TensorView& tensor, mlx::core::Dtype type, const LoadOptions& options);

// The type of activations that a checkpoint asks for: that of its matrices' plain numbers or scales
// (f32, f16, bf16). bf16 for GGML's block types and MLX's mx formats: most such files were made
// from bf16 models, whose activations may be too large for f16.
mlx::core::Dtype natural_type(const MatrixSource& source);

}  // namespace quince
