#include "engine/sampling/chain.h"

#include <algorithm>

namespace quince {

namespace {

bool does_something(SamplerStep step, const SamplingParams& p) {
  switch (step) {
    case SamplerStep::penalties:
      return (p.repetition_penalty != 1.0f && p.repeat_last_n != 0) || p.presence_penalty != 0.0f ||
             p.frequency_penalty != 0.0f;
    case SamplerStep::dry:
      return p.dry_multiplier > 0.0f && p.dry_penalty_last_n != 0;
    case SamplerStep::top_n_sigma:
      return p.top_n_sigma > 0.0f;
    case SamplerStep::top_k:
      return p.top_k > 0;
    case SamplerStep::typical_p:
      return p.typical_p < 1.0f;
    case SamplerStep::top_p:
      return p.top_p < 1.0f;
    case SamplerStep::min_p:
      return p.min_p > 0.0f;
    case SamplerStep::xtc:
      return p.xtc_probability > 0.0f && p.xtc_threshold <= 0.5f;
    case SamplerStep::temperature:
      return p.temperature != 1.0f || p.dynatemp_range > 0.0f;
  }
  return false;
}

bool changes_single_logits(SamplerStep step) {
  return step == SamplerStep::penalties || step == SamplerStep::dry;
}

bool keeps_the_best(SamplerStep step) {
  return !changes_single_logits(step) && step != SamplerStep::typical_p && step != SamplerStep::xtc;
}

bool leaves_one(SamplerStep step, const SamplingParams& p) {
  return (step == SamplerStep::top_k && p.top_k == 1) ||
         (step == SamplerStep::temperature && p.temperature == 0.0f && p.dynatemp_range == 0.0f);
}

}  // namespace

Chain make_chain(const SamplingParams& params) {
  Chain chain;
  chain.mirostat = params.mirostat != 0;
  for (const SamplerStep step : params.samplers) {
    const bool runs =
        !chain.mirostat || changes_single_logits(step) || step == SamplerStep::temperature;
    if (runs && does_something(step, params)) {
      chain.steps.push_back(step);
    }
  }
  // Steps that keep the best, up to one that keeps nothing else, are one search for the best.
  const auto end = chain.steps.end();
  const auto first = std::find_if_not(chain.steps.begin(), end, changes_single_logits);
  const auto other = std::find_if_not(first, end, keeps_the_best);
  if (std::any_of(first, other, [&](SamplerStep step) { return leaves_one(step, params); })) {
    chain.steps.erase(first, end);
    chain.greedy = true;
    chain.mirostat = false;
  }
  return chain;
}

}  // namespace quince
