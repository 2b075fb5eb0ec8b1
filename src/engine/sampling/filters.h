// The steps that take tokens out of the choice, and temperature. Each keeps at least one token, and
// leaves a choice of one, or one whose best logit is no number, as it is. Tokens that are out count
// no more: not in probabilities, not in entropy. No MLX.
#pragma once

#include "engine/sampling/candidates.h"
#include "engine/sampling_params.h"

namespace quince {

// The k likeliest (Fan et al. 2018, arXiv:1805.04833).
void keep_top_k(Candidates& candidates, int k);

// The fewest likeliest whose probability reaches p (Holtzman et al. 2019, arXiv:1904.09751).
void keep_top_p(Candidates& candidates, float p, size_t min_keep);

// Those with at least p times the probability of the likeliest (Nguyen et al. 2024,
// arXiv:2407.01082).
void keep_min_p(Candidates& candidates, float p, size_t min_keep);

// Those whose surprise -log(probability) is nearest to the entropy, until their probability exceeds
// p (Meister et al. 2022, arXiv:2202.00666). May take the likeliest away.
void keep_typical(Candidates& candidates, float p, size_t min_keep);

// Those whose logit is at most n standard deviations of all logits below the highest (Tang et al.
// 2024, arXiv:2411.07641).
void keep_top_n_sigma(Candidates& candidates, float n);

// Of the tokens that reach the threshold all but the least likely go, when two or more do and
// min_keep are left (text-generation-webui pull request 6335). The caller draws whether this step
// does it at all.
void exclude_top_choices(Candidates& candidates, float threshold, size_t min_keep);

// Divides logits by the temperature; at 0 only the best stays. With a range the temperature lies
// between temperature - range (not below 0) and temperature + range, at the place that entropy /
// log(number of tokens), raised to the exponent, says (llama.cpp pull request 4972).
void apply_temperature(Candidates& candidates, float temperature, float range, float exponent);

}  // namespace quince
