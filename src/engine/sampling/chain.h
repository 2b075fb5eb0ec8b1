// The order in which a token is chosen, for every sampler:
//
//   1. the mask, allowed_token_ids, end tokens, bad_words, then logit_bias     (bans.h)
//   2. the steps of SamplingParams::samplers, by default in llama.cpp's order:
//        penalties     repetition, presence, frequency                         (penalties.h)
//        dry                                                                   (dry.h)
//        top_n_sigma, top_k, typical_p, top_p, min_p, xtc                      (filters.h)
//        temperature   with its dynamic range                                  (filters.h)
//      With mirostat only those of penalties, dry and temperature that are listed, in that order,
//      and then mirostat.                                                      (mirostat.h)
//   3. one draw from what is left
//
// A step that is not listed, or whose values are neutral, does not run. A step that knows its only
// outcome ends the chain. No MLX.
#pragma once

#include <vector>

#include "engine/sampling_params.h"

namespace quince {

struct Chain {
  std::vector<SamplerStep> steps;  // those that do something, in order
  bool greedy = false;  // then the highest logit is taken: these steps are penalties and dry alone
  bool mirostat = false;  // follows the steps
};

Chain make_chain(const SamplingParams& params);

}  // namespace quince
