// Repetition, presence and frequency penalties. Which tokens count differs by where each comes
// from:
//   repetition: the last repeat_last_n tokens of prompt and output together, each distinct token
//     once: positive logits are divided by the penalty, others multiplied (Keskar et al. 2019,
//     arXiv:1909.05858, with the correction for negative logits that transformers, vLLM and
//     llama.cpp share). repeat_last_n is llama.cpp's; -1 is what vLLM and transformers do.
//   presence, frequency: the output alone, all of it, as OpenAI's API and vLLM define them:
//     logit -= presence + frequency * times.
// No MLX.
#pragma once

#include <deque>
#include <span>
#include <unordered_map>

#include "engine/sampling/candidates.h"
#include "engine/sampling_params.h"

namespace quince {

class Penalties {
 public:
  explicit Penalties(const SamplingParams& params);

  void observe(std::span<const int32_t> prompt);
  void accept(int32_t generated);
  void apply(Candidates& candidates) const;

 private:
  void look_back_at(int32_t token);

  float repetition_;
  float presence_;
  float frequency_;
  int window_;                                  // -1: all
  std::deque<int32_t> recent_;                  // of the window
  std::unordered_map<int32_t, int> in_window_;  // times
  std::unordered_map<int32_t, int> generated_;  // times
};

}  // namespace quince
