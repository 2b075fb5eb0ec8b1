// Attention of one sequence over what its cache holds, by MLX's operations.
#pragma once

#include <mlx/array.h>

#include "cache/kv_coding.h"
#include "cache/kv_layer.h"

namespace quince {

// q [1, heads, rows, head_dim]; planes: as KvLayer::update() returns them. Returns the shape of q.
// Codes are multiplied where they lie: nothing as long as the context is made of them but the
// scores. That way is also taken for keys and values of two types.
mlx::core::array attend(
    const mlx::core::array& q,
    const KvPlanes& planes,
    const KvCoding& keys,
    const KvCoding& values,
    float scale,
    const AttentionMask& mask);

}  // namespace quince
