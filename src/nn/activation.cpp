#include "nn/activation.h"

#include <numbers>

#include <mlx/mlx.h>

namespace quince {
namespace {

namespace mx = mlx::core;

mx::array number(float value, const mx::array& like) {
  return mx::array(value, like.dtype());
}

mx::array silu(const mx::array& x) {
  return x * mx::sigmoid(x);
}

// Hendrycks and Gimpel 2016, the tanh form.
mx::array gelu_tanh(const mx::array& x) {
  const float slope = static_cast<float>(std::sqrt(2.0 / std::numbers::pi));
  const mx::array inner = number(slope, x) * (x + number(0.044715f, x) * x * x * x);
  return number(0.5f, x) * x * (number(1.0f, x) + mx::tanh(inner));
}

mx::array gelu(const mx::array& x) {
  const float scale = static_cast<float>(1.0 / std::numbers::sqrt2);
  return number(0.5f, x) * x * (number(1.0f, x) + mx::erf(x * number(scale, x)));
}

mx::array apply(Activation activation, const mx::array& gate, const mx::array& up) {
  switch (activation) {
    case Activation::silu:
      return silu(gate) * up;
    case Activation::gelu_tanh:
      return gelu_tanh(gate) * up;
    case Activation::gelu:
      return gelu(gate) * up;
  }
  throw std::logic_error("[gated activation] unknown kind");
}

}  // namespace

GatedActivation make_gated_activation(Activation activation, bool fused) {
  if (!fused) {
    return [activation](const mx::array& gate, const mx::array& up) {
      return apply(activation, gate, up);
    };
  }
  auto compiled = mx::compile(
      std::function<std::vector<mx::array>(const std::vector<mx::array>&)>(
          [activation](const std::vector<mx::array>& in) {
            return std::vector<mx::array>{apply(activation, in[0], in[1])};
          }),
      /* shapeless */ true);
  return [compiled](const mx::array& gate, const mx::array& up) { return compiled({gate, up})[0]; };
}

}  // namespace quince
