#include "engine/sampling/mirostat.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace quince {

Mirostat::Mirostat(const SamplingParams& params)
    : version_(params.mirostat),
      tau_(params.mirostat_tau),
      eta_(params.mirostat_eta),
      mu_(2.0 * params.mirostat_tau) {}

void Mirostat::keep(Candidates& candidates, size_t vocabulary) const {
  if (!std::isfinite(candidates.highest()) || (!candidates.whole() && candidates.size() < 2)) {
    return;
  }
  if (version_ == 1) {
    keep_zipf(candidates, vocabulary);
  } else {
    keep_surprise(candidates);
  }
}

void Mirostat::keep_zipf(Candidates& candidates, size_t vocabulary) const {
  constexpr size_t kEstimated = 100;
  std::vector<Candidate> best;
  if (candidates.whole()) {  // a list of all of them would cost more than all the rest
    collect_best(candidates.row(), kEstimated, best);
    std::sort(best.begin(), best.end(), better);
  } else {
    const auto first = candidates.best(kEstimated);
    best.assign(first.begin(), first.end());
  }
  double tb = 0.0;
  double tt = 0.0;
  for (size_t i = 0; i + 1 < best.size(); ++i) {
    const double t = std::log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
    const double b = static_cast<double>(best[i].logit) - best[i + 1].logit;  // log(p_i / p_i+1)
    tb += t * b;
    tt += t * t;
  }
  const double s = tb / tt;
  const double epsilon = s - 1.0;
  const double k = std::pow(
      epsilon * std::pow(2.0, mu_) / (1.0 - std::pow(static_cast<double>(vocabulary), -epsilon)),
      1.0 / s);
  const size_t most = candidates.whole() ? candidates.row().size() : candidates.size();
  // Equal logits have no exponent (NaN): nothing is cut then.
  if (k < static_cast<double>(most)) {
    candidates.keep_best(std::max<size_t>(static_cast<size_t>(k), 1));
  }
}

void Mirostat::keep_surprise(Candidates& candidates) const {
  const double highest = candidates.highest();
  double total = 0.0;
  const auto count = [&](float logit) {
    total += logit > kNever ? std::exp(logit - highest) : 0.0;  // NaN is none
  };
  if (candidates.whole()) {
    for (const float logit : candidates.row()) {
      count(logit);
    }
  } else {
    for (const Candidate& c : candidates.list()) {
      count(c.logit);
    }
  }
  // -log2(p) <= mu, where p = exp(logit - highest) / total.
  const double lowest = highest + std::log(total) - mu_ * std::log(2.0);
  if (highest < lowest) {
    return candidates.keep_best(1);
  }
  auto bound = static_cast<float>(lowest);  // the first number from there up
  if (bound < lowest) {
    bound = std::nextafter(bound, std::numeric_limits<float>::infinity());
  }
  candidates.keep_above(bound, 1);
}

void Mirostat::learn(double probability) {
  // One that was rounded to 0 surprises without end, and 0 times that is no number.
  const double likely = std::max(probability, std::numeric_limits<double>::min());
  mu_ -= eta_ * (-std::log2(likely) - tau_);
}

}  // namespace quince
