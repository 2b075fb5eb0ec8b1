#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu_paths.h"
#include "kernels/elementwise.h"

namespace quince::kernels {
namespace {

class Activation : public EveryPath {};
QUINCE_EVERY_PATH(Activation);

// Dense around zero, out to where everything saturates.
std::vector<float> sweep() {
  std::vector<float> values;
  for (float x = -12; x <= 12; x += 0.00137f) {
    values.push_back(x);
  }
  for (float x = 1e-8f; x < 1e4f; x *= 1.7f) {
    values.push_back(x);
    values.push_back(-x);
  }
  values.push_back(0.0f);
  return values;
}

void check(
    void (*op)(const float*, const float*, int64_t, float*),
    double (*reference)(double),
    double relative,
    double absolute) {
  std::vector<float> gate = sweep();
  std::vector<float> up(gate.size());
  for (size_t i = 0; i < up.size(); ++i) {
    up[i] = 0.5f + static_cast<float>(i % 7);
  }
  std::vector<float> out(gate.size());
  op(gate.data(), up.data(), static_cast<int64_t>(gate.size()), out.data());
  for (size_t i = 0; i < gate.size(); ++i) {
    double want = reference(gate[i]) * up[i];
    ASSERT_NEAR(out[i], want, relative * std::abs(want) + absolute) << "gate " << gate[i];
  }
}

TEST_P(Activation, Silu) {
  check(row_ops(GetParam()).silu_mul, [](double g) { return g / (1 + std::exp(-g)); }, 5e-7, 1e-30);
}

TEST_P(Activation, GeluTanh) {
  // The reference in the form that keeps its digits: 0.5 (1 + tanh(u)) = 1 / (1 + e^-2u).
  auto reference = [](double g) {
    double u = std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g);
    return g / (1 + std::exp(-2 * u));
  };
  // In the far tail (value below 1e-6) the error of the exponent, which is large, shows.
  check(row_ops(GetParam()).gelu_tanh_mul, reference, 1e-6, 1e-9);
}

TEST_P(Activation, GeluErf) {
  auto reference = [](double g) { return 0.5 * g * std::erfc(-g / std::sqrt(2.0)); };
  check(row_ops(GetParam()).gelu_mul, reference, 3e-6, 1e-9);  // the exponent is rounded to f32
}

TEST_P(Activation, ExpWithinTwoUlp) {
  std::vector<float> x;
  for (float v = -87.3f; v < 88.7f; v += 0.00219f) {
    x.push_back(v);
  }
  std::vector<float> out(x.size());
  row_ops(GetParam()).exp(x.data(), static_cast<int64_t>(x.size()), out.data());
  for (size_t i = 0; i < x.size(); ++i) {
    double want = std::exp(static_cast<double>(x[i]));
    ASSERT_NEAR(out[i], want, 2.4e-7 * want) << "x " << x[i];
  }
}

TEST_P(Activation, ExpAtTheEnds) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> x = {-infinity, -1e30f, -100.0f, -88.0f, 0.0f, 88.5f, -0.0f};
  std::vector<float> out(x.size());
  row_ops(GetParam()).exp(x.data(), static_cast<int64_t>(x.size()), out.data());
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(out[i], 0.0f);
  }
  EXPECT_EQ(out[4], 1.0f);
  EXPECT_NEAR(out[5], std::exp(88.5), 1e-6 * std::exp(88.5));
  EXPECT_EQ(out[6], 1.0f);
}

TEST_P(Activation, Softcap) {
  std::vector<float> x = sweep();
  std::vector<float> out = x;
  row_ops(GetParam()).softcap(out.data(), 30.0f, static_cast<int64_t>(out.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    double want = 30 * std::tanh(static_cast<double>(x[i]) / 30);
    ASSERT_NEAR(out[i], want, 2e-6 * std::abs(want)) << "x " << x[i];
  }
}

TEST_P(Activation, AnyLengthAndInPlace) {
  const RowOps& ops = row_ops(GetParam());
  for (int n : {1, 2, 9, 15, 16, 31, 48}) {
    std::vector<float> gate(n + 1, 1.5f);
    std::vector<float> up(n + 1, 2.0f);
    ops.silu_mul(gate.data(), up.data(), n, gate.data());
    for (int i = 0; i < n; ++i) {
      EXPECT_NEAR(gate[i], 3.0 / (1 + std::exp(-1.5)), 1e-6);
    }
    EXPECT_EQ(gate[n], 1.5f);
  }
}

}  // namespace
}  // namespace quince::kernels
