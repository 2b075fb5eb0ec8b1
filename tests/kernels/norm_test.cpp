#include <cmath>
#include <random>
#include <vector>

#include "kernels/cpu_paths.h"
#include "kernels/elementwise.h"

namespace quince::kernels {
namespace {

class Norm : public EveryPath {};
QUINCE_EVERY_PATH(Norm);

std::vector<float> normal(size_t n, unsigned seed, float spread = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution(0, spread);
  std::vector<float> values(n);
  for (float& value : values) {
    value = distribution(random);
  }
  return values;
}

TEST_P(Norm, MatchesDoubleArithmeticAtAnyLength) {
  const RowOps& ops = row_ops(GetParam());
  for (int n : {1, 3, 4, 7, 8, 16, 17, 64, 67, 96, 576, 640, 1000, 4099}) {
    for (float spread : {1e-4f, 1.0f, 300.0f}) {
      std::vector<float> x = normal(n, n, spread);
      std::vector<float> weight = normal(n, n + 1);
      std::vector<float> out(n + 1, -7.0f);
      ops.rms_norm(x.data(), weight.data(), 1e-6f, n, out.data());
      double squares = 0;
      for (float v : x) {
        squares += static_cast<double>(v) * v;
      }
      double factor = 1 / std::sqrt(squares / n + 1e-6);
      for (int i = 0; i < n; ++i) {
        double want = x[i] * factor * weight[i];
        ASSERT_NEAR(out[i], want, 1e-6 * std::abs(want)) << "n " << n << " i " << i;
      }
      ASSERT_EQ(out[n], -7.0f) << "wrote past the end, n " << n;
    }
  }
}

TEST_P(Norm, InPlace) {
  const RowOps& ops = row_ops(GetParam());
  std::vector<float> x = normal(77, 1);
  std::vector<float> weight = normal(77, 2);
  std::vector<float> out(77);
  ops.rms_norm(x.data(), weight.data(), 1e-5f, 77, out.data());
  ops.rms_norm(x.data(), weight.data(), 1e-5f, 77, x.data());
  EXPECT_EQ(x, out);
}

TEST_P(Norm, AddAndScale) {
  const RowOps& ops = row_ops(GetParam());
  for (int n : {1, 5, 16, 33}) {
    std::vector<float> x = normal(n, 3);
    std::vector<float> y = normal(n, 4);
    std::vector<float> before = x;
    ops.add(x.data(), y.data(), n);
    ops.scale(x.data(), 3.0f, n);
    for (int i = 0; i < n; ++i) {
      EXPECT_EQ(x[i], (before[i] + y[i]) * 3.0f);
    }
  }
}

}  // namespace
}  // namespace quince::kernels
