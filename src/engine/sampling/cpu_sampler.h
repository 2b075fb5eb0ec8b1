// Chooses one token from one row of logits on the CPU, in the order that chain.h tells. No MLX.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/sampling/bans.h"
#include "engine/sampling/candidates.h"
#include "engine/sampling/chain.h"
#include "engine/sampling/dry.h"
#include "engine/sampling/mirostat.h"
#include "engine/sampling/penalties.h"
#include "engine/sampling_params.h"
#include "engine/token_stream.h"

namespace quince {

struct SampledToken {
  int32_t id = 0;
  // Under the row as it was given, without the request's parameters (vLLM's raw log probabilities).
  // NaN unless asked for.
  float logprob = 0.0f;
  std::vector<TokenLogprob> top;  // params.top_logprobs likeliest, best first; fewer if not so many
};

// What a row says about a token, whoever chose it. top: likeliest tokens to list.
SampledToken report_token(std::span<const float> logits, int32_t token, int top);

class CpuSampler {
 public:
  // seed: the draws of step n depend on (seed, n) alone, whatever else runs beside this request.
  CpuSampler(const SamplingParams& params, uint64_t seed);

  // The prompt, before the first sampled token.
  void observe(std::span<const int32_t> prompt);

  // Tokens that were chosen without sample(). Draws go on as if each had been one.
  void skip(std::span<const int32_t> tokens);

  // logits: one row. mask: bit t % 32 of word t / 32 allows token t, tokens beyond its end are not
  // allowed; null: all are. Records the chosen token. Throws UserError when no logit is finite, or
  // no token is left.
  SampledToken sample(std::span<const float> logits, const MaskWords* mask = nullptr);

 private:
  int32_t choose(std::span<const float> logits, const MaskWords* mask);
  void run(SamplerStep step);
  int32_t draw();
  void accept(int32_t token);

  SamplingParams params_;
  uint64_t seed_;
  uint64_t step_ = 0;
  Chain chain_;
  Bans bans_;
  std::optional<Penalties> penalties_;
  std::optional<Dry> dry_;
  std::optional<Mirostat> mirostat_;
  std::vector<int32_t> history_;  // prompt and output
  size_t prompt_tokens_ = 0;      // of the history
  Candidates candidates_;
  std::vector<double> weights_;
};

}  // namespace quince
