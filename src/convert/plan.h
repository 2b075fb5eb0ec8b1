// What is written for each tensor of a model, decided before anything is read: the output's tensors
// with types and shapes, from which shard files and their headers follow.
#pragma once

#include <string>
#include <vector>

#include "convert/policy.h"
#include "weights/model_files.h"

namespace quince {

struct OutputTensor {
  std::string name;
  TensorType type = TensorType::f32;
  std::vector<int64_t> shape;
  uint64_t bytes() const;
};

// One tensor of the source, or one MLX triple, and what becomes of it.
struct ConvertJob {
  enum class Kind {
    raw,       // bytes as they are
    cast,      // decoded, rounded to outputs[0].type
    codes,     // block format to MLX's form, code by code
    triple,    // MLX's triple as it is, scales and biases rounded to their output type
    quantize,  // decoded, rounded to the dtype, quantized
  };
  Kind kind = Kind::raw;
  std::string path;  // without ".weight" for matrices
  TensorView weight;
  std::optional<TensorView> scales;
  std::optional<TensorView> biases;
  std::optional<MlxLayout> source_layout;  // of a triple
  int64_t rows = 0;
  int64_t columns = 0;                  // logical
  std::optional<MlxLayout> layout;      // of the output; nothing: plain
  TensorType dtype = TensorType::bf16;  // of plain output and of scales
  std::vector<OutputTensor> outputs;    // weight (codes), scales, biases
  std::string exception;
};

struct ConvertPlan {
  std::vector<ConvertJob> jobs;
  TensorType dtype = TensorType::bf16;
  // config.json's "quantization": the commonest layout, and every other matrix's own by path
  // (false: plain). Empty when nothing is quantized.
  boost::json::object quantization;
  std::vector<std::string> lines;
  std::vector<std::string> exceptions;
  int64_t parameters = 0;
  uint64_t bytes = 0;
};

// dtype: absent = the checkpoint's own. Throws UserError.
ConvertPlan plan_conversion(
    const ModelFiles& files, std::optional<TensorType> dtype, const QuantPolicy& policy);

}  // namespace quince
