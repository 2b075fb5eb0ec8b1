// Single keys and values of a block, as floats: for files, never in a step. No MLX. Any thread.
#pragma once

#include <cstddef>

#include "kernels/kv_pool.h"

namespace quince::kernels {

// Keys and values [kKvBlock][head_dim] of one head of a block, as what is stored stands for them.
void read_block(
    const KvLayout& layout,
    const std::byte* block,
    int layer,
    int head,
    float* keys,
    float* values);
// The other way round: in all formats, coded ones too.
void write_block(
    const KvLayout& layout,
    std::byte* block,
    int layer,
    int head,
    const float* keys,
    const float* values);

}  // namespace quince::kernels
