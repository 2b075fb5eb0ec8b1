#include "engine/sampling_params.h"

#include <cmath>

#include "base/error.h"

namespace quince {

namespace {

void check_range(const char* name, float value, float low, float high, const char* range) {
  if (!(value >= low && value <= high)) {  // also refuses NaN
    throw UserError("{} is {}, want {}", name, value, range);
  }
}

}  // namespace

void SamplingParams::check() const {
  constexpr float kHuge = 1e9f;
  check_range("temperature", temperature, 0.0f, kHuge, "a number from 0 up");
  check_range("top_p", top_p, 0.0f, 1.0f, "0 to 1");
  check_range("min_p", min_p, 0.0f, 1.0f, "0 to 1");
  check_range("repetition_penalty", repetition_penalty, 1e-6f, kHuge, "a number above 0");
  if (top_k < 0) {
    throw UserError("top_k is {}, want 0 (off) or a positive number", top_k);
  }
  if (repetition_window < -1) {
    throw UserError(
        "repetition_window is {}, want -1 (all) or a number from 0 up", repetition_window);
  }
  if (max_tokens < -1) {
    throw UserError("max_tokens is {}, want -1 (no limit) or a number from 0 up", max_tokens);
  }
  for (const auto& [token, bias] : logit_bias) {
    if (std::isnan(bias)) {
      throw UserError("logit_bias of token {} is not a number", token);
    }
  }
}

}  // namespace quince
