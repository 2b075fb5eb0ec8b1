// A weight matrix in the order in which the native CPU kernels stream it: blocks of 16 output rows,
// inside a block the columns in steps of 4, so that one 64-byte vector holds 4 columns of 16 rows.
// That is the operand of VNNI and dot-product instructions and, unpacked, an AMX tile row. Exact
// for every format it keeps, never more than 2% larger than the file. No MLX.
//
// Packing is done once at load, in parallel, block by block; the mapped source pages are dropped as
// they are consumed, so peak memory is the packed bytes plus a little.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/thread_pool.h"
#include "weights/tensor.h"

namespace quince::kernels {

// Code widths and scale plans. Direct: w = scale * (code - zero) or w = scale * code + bias, 16-bit
// scale and bias a group. Two-level (K-quants): group scale = 16-bit super scale * 6- or 4- or
// 8-bit sub scale.
enum class PackedKind : uint8_t { f32, f16, bf16, direct, two_level };

struct PackedFormat {
  PackedKind kind = PackedKind::f32;
  int bits = 32;                 // of a code
  int group = 0;                 // columns that share a scale: 16, 32, 64, 128; 0 for dense kinds
  bool biased = false;           // per-group bias (min) stored
  std::string describe() const;  // "4-bit g32 affine", "bf16"
};

// What to pack: a dense or GGML-typed tensor, or MLX's triple (u32 codes, scales, biases).
struct PackSource {
  TensorView weight;  // logical [rows, columns]; for MLX triples [rows, columns * bits / 32] of u32
  std::optional<TensorView> scales;  // MLX triple only
  std::optional<TensorView> biases;
  int bits = 0;   // MLX triple only
  int group = 0;  // MLX triple only
};

class PackArena;  // kernels/packed_memory.h

class PackedMatrix {
 public:
  // Formats without a native layout (IQ*, TQ*, MXFP4, F64, integers, F8) are held as 8-bit g32 or
  // 16-bit floats, whichever is exact enough; packed_format() tells beforehand what it will be.
  // arena: where the bytes lie; all matrices of a model should share one (see packed_memory.h; a
  // third of the decoding speed hangs on it). Null: one of its own. Needed during the call only.
  static PackedMatrix pack(const PackSource& source, ThreadPool& pool, PackArena* arena = nullptr);
  static PackedFormat packed_format(const PackSource& source);

  // Rows of a and b (same columns and format) stacked: one matrix for q, k, v or gate and up.
  // Returns nothing when formats differ.
  static std::optional<PackedMatrix> pack_stacked(
      std::span<const PackSource> sources, ThreadPool& pool, PackArena* arena = nullptr);

  PackedMatrix(PackedMatrix&&) noexcept;
  PackedMatrix& operator=(PackedMatrix&&) noexcept;
  ~PackedMatrix();

  int64_t rows() const;     // output features
  int64_t columns() const;  // input features
  const PackedFormat& format() const;
  size_t bytes() const;  // held in memory

  // Row `row` as f32 (embedding look-up; any thread).
  void unpack_row(int64_t row, float* out) const;

  struct Layout;  // private to src/kernels
  const Layout& layout() const {
    return *layout_;
  }

 private:
  PackedMatrix();
  std::unique_ptr<Layout> layout_;
};

}  // namespace quince::kernels
