#include "kernels/rope.h"

#include <cmath>

namespace quince::kernels {

void rope_angles(
    std::span<const float> inv_freq, int64_t position, float factor, float* cos, float* sin) {
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    double angle = static_cast<double>(inv_freq[i]) * static_cast<double>(position);
    cos[i] = static_cast<float>(std::cos(angle) * factor);
    sin[i] = static_cast<float>(std::sin(angle) * factor);
  }
}

}  // namespace quince::kernels
