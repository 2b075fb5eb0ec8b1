// The filters of filters.h and mirostat.h as MLX operations on a row of logits [V] f32: what they
// take away becomes -infinity.
#pragma once

#include <cstdint>
#include <span>

#include <mlx/array.h>

#include "engine/sampling_params.h"

namespace quince::composed {

using mlx::core::array;

array never();  // -infinity
array top_k(const array& row, int k);
array top_p(const array& row, float p, int min_keep);
array min_p(const array& row, float p, int min_keep);
array typical(const array& row, float p, int min_keep);
array top_n_sigma(const array& row, float n);
array exclude_top_choices(const array& row, float threshold, int min_keep);
array temperature(const array& row, float temperature, float range, float exponent);
array mirostat(const array& row, const array& mu, int version);

// The bits of words as [size] bool; beyond the words false.
array mask(std::span<const uint32_t> words, int size);
array mask(const array& words, int size);

}  // namespace quince::composed
