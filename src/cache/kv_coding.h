// How MLX's operations hold keys or values: as numbers of one type, one plane of rows, or in 8 or 4
// bits a number, as mlx::core::quantize gives them: three planes, of codes, scales and biases of
// groups of numbers. Planes stay apart so that a product reads each where it lies.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <mlx/array.h>

#include "cache/kv_layer.h"
#include "kernels/kv_type.h"

namespace quince {

// Rows of a plane: `width` numbers of `type` for each row and head.
struct KvPlane {
  int width = 0;
  mlx::core::Dtype type = mlx::core::float32;
  size_t row_bytes() const {
    return static_cast<size_t>(width) * mlx::core::size_of(type);
  }
};

class KvCoding {
 public:
  // type: of the numbers, or of what is computed from codes. format absent: type itself; f32, f16
  // and bf16 stand for themselves. Throws UserError when head_dim has no groups for 8 or 4 bits.
  KvCoding(mlx::core::Dtype type, std::optional<kernels::KvType> format, int head_dim);

  bool coded() const {
    return bits_ > 0;
  }
  mlx::core::Dtype type() const {
    return type_;
  }
  int bits() const {
    return bits_;
  }
  int group() const {
    return group_;
  }
  std::vector<KvPlane> planes() const;
  size_t row_bytes() const;  // of one head, all planes
  std::string name() const;  // "f16", "q4 in groups of 64 of f16"

  // [1, kv_heads, T, head_dim] to planes. Engine thread.
  KvPlanes encode(const mlx::core::array& rows) const;
  // Planes as bytes, [rows, width] of each behind the other, to floats [rows, head_dim] and back.
  // Any thread.
  void decode(const std::byte* planes, size_t rows, float* out) const;
  void encode(const float* from, size_t rows, std::byte* planes) const;

 private:
  mlx::core::Dtype type_;
  int head_dim_;
  int bits_ = 0;
  int group_ = 0;
};

}  // namespace quince
