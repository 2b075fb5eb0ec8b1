// A tensor as it lies in a model file: a named, typed, shaped view of mapped bytes. Nothing is
// read, converted or copied until somebody asks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"

namespace quince {

// Element types of safetensors and GGUF. The block types are GGML's; their byte layouts are
// documented in weights/ggml_blocks.h.
enum class TensorType : uint8_t {
  f64,
  f32,
  f16,
  bf16,
  f8_e4m3,
  f8_e5m2,
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8,
  boolean,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq1_s,
  iq1_m,
  iq2_xxs,
  iq2_xs,
  iq2_s,
  iq3_xxs,
  iq3_s,
  iq4_nl,
  iq4_xs,
  tq1_0,
  tq2_0,
  mxfp4,
};

struct TensorTypeInfo {
  std::string_view name;  // "Q4_K"
  int block;              // elements in a block, 1 for plain types
  int bytes;              // of a block
};
const TensorTypeInfo& info(TensorType type);

struct TensorView {
  std::string name;
  TensorType type = TensorType::f32;
  std::vector<int64_t> shape;              // outermost first; blocks run along the last dimension
  std::span<const std::byte> bytes;        // little-endian, not aligned to anything
  std::shared_ptr<const MappedFile> file;  // keeps bytes alive; null when owner does
  std::shared_ptr<const void> owner;       // of bytes that lie in no file (make_tensor)

  // The logical tensor may differ from the stored one in two ways, both left by GGUF converters:
  // logical row i is stored row row_order[i] (empty: same order), and add is added to every
  // element.
  std::vector<int32_t> row_order;
  float add = 0.0f;

  int64_t size() const;                             // elements
  int64_t rows() const;                             // product of all dimensions but the last
  int64_t columns() const;                          // last dimension; 1 for a scalar
  std::span<const std::byte> row(int64_t i) const;  // bytes of logical row i
};

// Bytes of a tensor of this type and shape. Nothing when a dimension is negative, the last one is
// not a multiple of the type's block, or the number does not fit 63 bits.
std::optional<uint64_t> tensor_bytes(TensorType type, std::span<const int64_t> shape);

// "[2, 3]"
std::string shape_text(std::span<const int64_t> shape);

// A tensor that owns its bytes.
TensorView make_tensor(
    std::string name, TensorType type, std::vector<int64_t> shape, std::vector<std::byte> bytes);

// Decodes logical rows [first, first + count) to f32, row after row, into out. Any type, any
// thread.
void decode_rows(const TensorView& tensor, int64_t first, int64_t count, float* out);

}  // namespace quince
