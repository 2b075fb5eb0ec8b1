// Where the numbers of one weight matrix lie in the model file: a dense or block-typed tensor, or
// MLX's triple of codes, scales and biases. Taken from Weights and checked once, here, for every
// kernel set. No conversion happens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <boost/json.hpp>

#include "weights/tensor.h"
#include "weights/weights.h"

namespace quince {

// How MLX packs a matrix (mlx.core.quantize): codes of `bits`, little-endian bit stream along a row
// in u32 words; per `group` columns a scale and, in mode "affine", a bias: w = scale * code + bias.
struct MlxLayout {
  int bits = 0;                 // affine 2, 3, 4, 5, 6, 8; mxfp4 and nvfp4 4; mxfp8 8
  int group = 0;                // affine 32, 64, 128; mxfp4 and mxfp8 32; nvfp4 16
  std::string mode = "affine";  // affine, mxfp4, mxfp8, nvfp4
};

// The layout that config.json's "quantization" object gives to the layer at `path`
// ("model.layers.0.self_attn.q_proj"): its override when it has one, else the default. Nothing for
// a layer left plain (`false`) or without any quantization. Throws UserError for values MLX has
// not.
std::optional<MlxLayout> mlx_layout(
    const boost::json::object& quantization, std::string_view path, std::string_view source);

struct MatrixSource {
  std::string path;   // without ".weight"
  TensorView weight;  // [rows, columns]; of an MLX triple: u32 codes [rows, columns * bits / 32]
  std::optional<TensorView> scales;  // [rows, columns / group]: MLX triples only
  std::optional<TensorView> biases;  // as scales; mode "affine" only
  std::optional<MlxLayout> layout;   // MLX triples only
  int64_t rows = 0;                  // output features
  int64_t columns = 0;               // input features
};

// Takes path + ".weight" (".scales", ".biases"). Throws UserError when a tensor is missing or has
// another shape than rows, columns and the configured layout ask for: names it, gives both shapes.
MatrixSource take_matrix(Weights& weights, const std::string& path, int64_t rows, int64_t columns);

}  // namespace quince
