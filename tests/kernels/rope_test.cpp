#include "kernels/rope.h"

#include <cmath>
#include <vector>

#include "kernels/cpu_paths.h"
#include "kernels/elementwise.h"

namespace quince::kernels {
namespace {

class Rope : public EveryPath {};
QUINCE_EVERY_PATH(Rope);

TEST_P(Rope, RotatesHalfSplitPairs) {
  const RowOps& ops = row_ops(GetParam());
  for (int half : {1, 2, 4, 5, 16, 32, 40, 64, 128}) {
    std::vector<float> inv_freq(half);
    for (int i = 0; i < half; ++i) {
      inv_freq[i] = static_cast<float>(std::pow(10000.0, -static_cast<double>(i) / half));
    }
    for (int64_t position : {0, 1, 17, 4095, 131071}) {
      std::vector<float> cos(half);
      std::vector<float> sin(half);
      rope_angles(inv_freq, position, 1.25f, cos.data(), sin.data());
      std::vector<float> x(2 * half + 3);  // three more dimensions pass through
      for (size_t i = 0; i < x.size(); ++i) {
        x[i] = std::sin(0.7f * static_cast<float>(i + 1));
      }
      std::vector<float> before = x;
      ops.rope(x.data(), cos.data(), sin.data(), half);
      for (int i = 0; i < half; ++i) {
        double angle = static_cast<double>(inv_freq[i]) * static_cast<double>(position);
        double c = 1.25 * std::cos(angle);
        double s = 1.25 * std::sin(angle);
        ASSERT_NEAR(x[i], before[i] * c - before[half + i] * s, 4e-7);
        ASSERT_NEAR(x[half + i], before[half + i] * c + before[i] * s, 4e-7);
      }
      for (size_t i = 2 * half; i < x.size(); ++i) {
        ASSERT_EQ(x[i], before[i]);
      }
    }
  }
}

// The point of rope: products of rotated rows depend on the distance of their positions only, also
// far out.
TEST(RopeAngles, DependOnDistanceOnly) {
  std::vector<float> inv_freq = {1.0f, 0.1f, 0.01f, 0.001f};
  auto product = [&](int64_t p, int64_t q) {
    float cos[2][4];
    float sin[2][4];
    rope_angles(inv_freq, p, 1.0f, cos[0], sin[0]);
    rope_angles(inv_freq, q, 1.0f, cos[1], sin[1]);
    double total = 0;
    for (int i = 0; i < 4; ++i) {
      total +=
          static_cast<double>(cos[0][i]) * cos[1][i] + static_cast<double>(sin[0][i]) * sin[1][i];
    }
    return total;
  };
  for (int64_t base : {100, 10000, 1000000}) {
    EXPECT_NEAR(product(base, base + 37), product(0, 37), 1e-6) << base;
  }
}

}  // namespace
}  // namespace quince::kernels
