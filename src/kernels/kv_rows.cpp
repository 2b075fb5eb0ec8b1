#include "kernels/kv_rows.h"

#include <vector>

#include "kernels/attention.h"
#include "kernels/attention_stored.h"

namespace quince::kernels {

void read_block(
    const KvLayout& layout,
    const std::byte* block,
    int layer,
    int head,
    float* keys,
    float* values) {
  const int dim = layout.head_dim;
  const int width = layout.value_width();
  std::vector<float> room(static_cast<size_t>(width) * kKvBlock);
  const float* stored = keys_as_floats(
      layout.key_type, block + layout.key_offset(layer, head), dim, width, room.data());
  for (int p = 0; p < kKvBlock; ++p) {
    for (int d = 0; d < dim; ++d) {
      keys[p * dim + d] = stored[d * kKvBlock + p];
    }
    if (is_coded(layout.key_type)) {
      turn_row_back(keys + p * dim, dim);
    }
  }
  stored = values_as_floats(
      layout.value_type, block + layout.value_offset(layer, head), width, room.data());
  for (int p = 0; p < kKvBlock; ++p) {
    for (int d = 0; d < dim; ++d) {
      values[p * dim + d] = stored[p * width + d];
    }
    if (is_coded(layout.value_type)) {
      turn_row_back(values + p * dim, dim);
    }
  }
}

void write_block(
    const KvLayout& layout,
    std::byte* block,
    int layer,
    int head,
    const float* keys,
    const float* values) {
  AttentionHead place;
  place.key_type = layout.key_type;
  place.value_type = layout.value_type;
  place.head_dim = layout.head_dim;
  place.value_width = layout.value_width();
  attention_ops(detect()).store(
      place,
      block + layout.key_offset(layer, head),
      block + layout.value_offset(layer, head),
      0,
      kKvBlock,
      keys,
      values,
      layout.head_dim);
}

}  // namespace quince::kernels
