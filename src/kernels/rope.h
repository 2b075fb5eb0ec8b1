// Rotation angles of the rotary position embedding. No MLX; any thread.
#pragma once

#include <cstdint>
#include <span>

namespace quince::kernels {

// cos[i] = factor * cos(position * inv_freq[i]), sin likewise; the angle is computed in double, so
// that it stays exact at any position.
void rope_angles(
    std::span<const float> inv_freq, int64_t position, float factor, float* cos, float* sin);

}  // namespace quince::kernels
