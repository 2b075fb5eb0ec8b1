// Which form a source is held in, and how its scales get there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/packed_layout.h"

namespace quince::kernels {

// How a source becomes a packed matrix.
enum class PackRoute : uint8_t {
  keep_codes,   // block codes and scales taken over as they are
  mlx_triple,   // MLX's bit stream and its scales
  dense,        // 16- or 32-bit floats taken over
  decode_f32,   // decode_rows, held as f32
  decode_bf16,  // decode_rows, held as bf16 (types whose every value is a bf16)
  decode_int8,  // decode_rows, then 8 bits and an f32 scale per 32 columns
};

struct PackPlan {
  PackRoute route = PackRoute::dense;
  PackedFormat format;
  ScalePlan scales = ScalePlan::none;
  int zero = 0;
  int64_t rows = 0;
  int64_t columns = 0;

  bool operator==(const PackPlan&) const;
};

// Throws UserError when an MLX triple's parts do not fit together.
PackPlan plan_of(const PackSource& source);

// Scales of one unit (a 32-column block, or a super block) of one row, written to column `lane` of
// the unit's place in the packed block.
using UnitScales = void (*)(const std::byte* row, int64_t unit, int lane, std::byte* out);
UnitScales unit_scales(TensorType type);

// 32 floats as 8-bit codes around 128 and a scale. exact_power: choose a power of two, which holds
// MXFP4's values exactly.
float quantize_chunk(const float* values, bool exact_power, uint8_t* codes);

}  // namespace quince::kernels
