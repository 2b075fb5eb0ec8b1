#include "engine/sampling/filters.h"

#include <algorithm>
#include <cmath>

namespace quince {

namespace {

// Sorting begins with so many: the likeliest few mostly suffice.
constexpr size_t kFirstSorted = 256;

// Lower ones would make logits infinite, and choose no other token.
constexpr float kLowestTemperature = 1e-9f;

bool settled(Candidates& candidates) {
  return !std::isfinite(candidates.highest()) || candidates.size() < 2;
}

double weight(const Candidate& c, double highest) {
  return std::exp(c.logit - highest);
}

double total_weight(Candidates& candidates, double highest) {
  double total = 0.0;
  for (const Candidate& c : candidates.list()) {
    total += weight(c, highest);
  }
  return total;
}

// In nats. sum(w * log(w)) / total, as log(p) = log(w) - log(total).
double entropy(Candidates& candidates, double highest, double total) {
  double sum = 0.0;
  for (const Candidate& c : candidates.list()) {
    sum += weight(c, highest) * (c.logit - highest);
  }
  return std::log(total) - sum / total;
}

}  // namespace

void keep_top_k(Candidates& candidates, int k) {
  candidates.keep_best(static_cast<size_t>(k));
}

void keep_top_p(Candidates& candidates, float p, size_t min_keep) {
  if (settled(candidates)) {
    return;
  }
  const double highest = candidates.highest();
  const double wanted = p * total_weight(candidates, highest);
  const size_t size = candidates.size();
  double sum = 0.0;
  size_t kept = 0;
  for (size_t sorted = std::min(kFirstSorted, size); kept < size;
       sorted = std::min(4 * sorted, size)) {
    for (const Candidate& c : candidates.best(sorted).subspan(kept)) {
      sum += weight(c, highest);
      ++kept;
      if (sum >= wanted && kept >= min_keep) {
        return candidates.keep_best(kept);
      }
    }
  }
}

void keep_min_p(Candidates& candidates, float p, size_t min_keep) {
  if (std::isfinite(candidates.highest())) {
    candidates.keep_above(candidates.highest() + std::log(p), min_keep);
  }
}

void keep_typical(Candidates& candidates, float p, size_t min_keep) {
  if (settled(candidates)) {
    return;
  }
  const double highest = candidates.highest();
  const double total = total_weight(candidates, highest);
  const double mean = entropy(candidates, highest, total);
  const double log_total = std::log(total);
  struct Scored {
    double score;
    Candidate candidate;
  };
  std::vector<Scored> scored;
  scored.reserve(candidates.size());
  for (const Candidate& c : candidates.list()) {
    scored.push_back({std::abs(log_total - (c.logit - highest) - mean), c});
  }
  const auto nearer = [](const Scored& a, const Scored& b) {
    return a.score != b.score ? a.score < b.score : better(a.candidate, b.candidate);
  };
  double sum = 0.0;
  size_t kept = 0;
  size_t sorted = 0;
  while (kept < scored.size()) {
    if (kept == sorted) {
      const auto begin = scored.begin() + static_cast<int64_t>(sorted);
      sorted = std::min(std::max(kFirstSorted, 4 * sorted), scored.size());
      const auto end = scored.begin() + static_cast<int64_t>(sorted);
      std::partial_sort(begin, end, scored.end(), nearer);
    }
    sum += weight(scored[kept].candidate, highest) / total;
    ++kept;
    if (sum > p && kept >= min_keep) {
      break;
    }
  }
  auto& list = candidates.list();
  list.clear();
  for (size_t i = 0; i < kept; ++i) {
    list.push_back(scored[i].candidate);
  }
  candidates.disturbed();
}

void keep_top_n_sigma(Candidates& candidates, float n) {
  if (settled(candidates)) {
    return;
  }
  const auto& list = candidates.list();
  const auto size = static_cast<double>(list.size());
  double mean = 0.0;
  for (const Candidate& c : list) {
    mean += c.logit / size;
  }
  double variance = 0.0;
  for (const Candidate& c : list) {
    variance += (c.logit - mean) * (c.logit - mean) / size;
  }
  const float highest = candidates.highest();
  candidates.keep_above(highest - n * static_cast<float>(std::sqrt(variance)), 1);
}

void exclude_top_choices(Candidates& candidates, float threshold, size_t min_keep) {
  if (settled(candidates)) {
    return;
  }
  const double highest = candidates.highest();
  const double lowest = threshold * total_weight(candidates, highest);
  const auto reaches = [&](const Candidate& c) { return weight(c, highest) >= lowest; };
  const auto& list = candidates.list();
  const auto count = static_cast<size_t>(std::count_if(list.begin(), list.end(), reaches));
  if (count >= 2 && candidates.size() - (count - 1) >= min_keep) {
    candidates.best(count);
    candidates.drop_front(count - 1);
  }
}

void apply_temperature(Candidates& candidates, float temperature, float range, float exponent) {
  if (!std::isfinite(candidates.highest())) {
    return;
  }
  if (range > 0.0f) {
    if (candidates.size() < 2) {
      return;
    }
    const double highest = candidates.highest();
    const double even = std::log(static_cast<double>(candidates.size()));
    const double spread =
        std::max(0.0, entropy(candidates, highest, total_weight(candidates, highest))) / even;
    const float low = std::max(0.0f, temperature - range);
    temperature = low + (temperature + range - low) *
                            static_cast<float>(std::pow(std::min(1.0, spread), exponent));
  }
  if (temperature == 0.0f) {
    return candidates.keep_best(1);
  }
  const float divisor = std::max(temperature, kLowestTemperature);
  if (candidates.whole()) {  // what follows may do without a list
    for (float& logit : candidates.changed_row()) {
      logit /= divisor;
    }
    return;
  }
  for (Candidate& c : candidates.list()) {
    c.logit /= divisor;
  }
}

}  // namespace quince
