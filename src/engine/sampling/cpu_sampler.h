// Chooses one token from one row of logits on the CPU. The order of the steps is the order in
// sample(): logit bias, repetition penalty, then greedy, or top-k, min-p, top-p, temperature, draw.
// A step with a neutral value costs nothing. No MLX.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "engine/sampling_params.h"

namespace quince {

struct SampledToken {
  int32_t id = 0;
  float logprob = 0.0f;  // natural log of the probability under the row as given
};

class CpuSampler {
 public:
  // seed: the draws of step n depend on (seed, n) alone, whatever else runs beside this request.
  CpuSampler(const SamplingParams& params, uint64_t seed);

  // Tokens that the repetition penalty looks back at before the first sampled one.
  void observe(std::span<const int32_t> tokens);

  // logits: one row. Records the chosen token. Throws std::runtime_error when no logit is finite.
  SampledToken sample(std::span<const float> logits);

 private:
  struct Candidate {
    float logit;
    int32_t id;
  };

  std::span<const float> adjusted(std::span<const float> logits);
  void collect_candidates(std::span<const float> logits, float highest);
  void keep_nucleus();
  SampledToken draw(std::span<const float> logits, float highest);
  void remember(int32_t token);

  SamplingParams params_;
  uint64_t seed_;
  uint64_t step_ = 0;
  std::deque<int32_t> recent_;  // penalty window
  std::vector<float> row_;      // logits after bias and penalty
  std::vector<Candidate> candidates_;
  std::vector<double> weights_;
};

}  // namespace quince
