#include "engine/sampling/cpu_sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "engine/sampling/filters.h"
#include "engine/sampling/random.h"

namespace quince {

namespace {

[[noreturn]] void complain(std::span<const float> logits) {
  if (!std::isfinite(block_max(logits.data(), logits.size()))) {
    throw UserError(
        "the model computed no number for its next token (NaN or infinity in every logit): its "
        "weights are damaged, or too large for 16 bits; download it again, or try --kernels mlx "
        "--dtype f32");
  }
  throw UserError("no token is left to choose from: what the request allows excludes every one");
}

}  // namespace

SampledToken report_token(std::span<const float> logits, int32_t token, int top) {
  const float total = log_sum_exp(logits);
  SampledToken report{token, logits[token] - total, {}};
  if (top > 0) {
    std::vector<Candidate> best;
    collect_best(logits, static_cast<size_t>(top), best);
    std::sort(best.begin(), best.end(), better);
    for (const Candidate& c : best) {
      report.top.push_back({c.id, c.logit - total});
    }
  }
  return report;
}

CpuSampler::CpuSampler(const SamplingParams& params, uint64_t seed)
    : params_(params), seed_(seed), chain_(make_chain(params)), bans_(params) {
  for (const SamplerStep step : chain_.steps) {
    if (step == SamplerStep::penalties) {
      penalties_.emplace(params);
    } else if (step == SamplerStep::dry) {
      dry_.emplace(params);
    }
  }
  if (chain_.mirostat) {
    mirostat_.emplace(params);
  }
}

void CpuSampler::skip(std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) {
    accept(token);
  }
}

void CpuSampler::observe(std::span<const int32_t> prompt) {
  if (penalties_) {
    penalties_->observe(prompt);
  }
  if (dry_) {
    history_.insert(history_.end(), prompt.begin(), prompt.end());
    prompt_tokens_ = history_.size();
  }
}

SampledToken CpuSampler::sample(std::span<const float> logits, const MaskWords* mask) {
  SampledToken token{choose(logits, mask), std::numeric_limits<float>::quiet_NaN(), {}};
  if (params_.wants_logprobs()) {
    token = report_token(logits, token.id, params_.top_logprobs);
  }
  accept(token.id);
  return token;
}

int32_t CpuSampler::choose(std::span<const float> logits, const MaskWords* mask) {
  candidates_.start(logits);
  bans_.apply(candidates_, mask, std::span(history_).subspan(prompt_tokens_));
  for (const SamplerStep step : chain_.steps) {
    run(step);
  }
  if (chain_.greedy) {
    const float highest = candidates_.highest();
    if (!std::isfinite(highest)) {
      complain(logits);
    }
    return arg_max(candidates_.row(), highest);
  }
  if (mirostat_) {
    mirostat_->keep(candidates_, logits.size());
  }
  if (!std::isfinite(candidates_.highest())) {
    complain(logits);
  }
  return draw();
}

void CpuSampler::run(SamplerStep step) {
  const auto min_keep = static_cast<size_t>(params_.min_keep);
  switch (step) {
    case SamplerStep::penalties:
      return penalties_->apply(candidates_);
    case SamplerStep::dry:
      return dry_->apply(candidates_, history_);
    case SamplerStep::top_n_sigma:
      return keep_top_n_sigma(candidates_, params_.top_n_sigma);
    case SamplerStep::top_k:
      return keep_top_k(candidates_, params_.top_k);
    case SamplerStep::typical_p:
      return keep_typical(candidates_, params_.typical_p, min_keep);
    case SamplerStep::top_p:
      return keep_top_p(candidates_, params_.top_p, min_keep);
    case SamplerStep::min_p:
      return keep_min_p(candidates_, params_.min_p, min_keep);
    case SamplerStep::xtc:
      if (uniform(seed_, step_, Draw::xtc) < params_.xtc_probability) {
        exclude_top_choices(candidates_, params_.xtc_threshold, min_keep);
      }
      return;
    case SamplerStep::temperature:
      return apply_temperature(
          candidates_, params_.temperature, params_.dynatemp_range, params_.dynatemp_exponent);
  }
}

int32_t CpuSampler::draw() {
  const double highest = candidates_.highest();
  const auto& list = candidates_.list();
  double total = 0.0;
  weights_.clear();
  for (const Candidate& c : list) {
    weights_.push_back(std::exp(c.logit - highest));
    total += weights_.back();
  }
  double left = uniform(seed_, step_, Draw::token) * total;
  size_t chosen = 0;
  while (chosen + 1 < list.size() && left >= weights_[chosen]) {
    left -= weights_[chosen++];
  }
  if (mirostat_) {
    mirostat_->learn(weights_[chosen] / total);
  }
  return list[chosen].id;
}

void CpuSampler::accept(int32_t token) {
  ++step_;
  if (penalties_) {
    penalties_->accept(token);
  }
  history_.push_back(token);
}

}  // namespace quince
