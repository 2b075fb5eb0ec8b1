#include "gateway/balance.h"

namespace quince::gateway {

std::optional<size_t> Balancer::choose(Balance balance, std::span<const Candidate> candidates) {
  credit_.resize(candidates.size());
  // Of two: whether a has fewer requests for its weight.
  const auto less_busy = [](const Candidate& a, const Candidate& b) {
    return int64_t{a.in_flight} * b.weight < int64_t{b.in_flight} * a.weight;
  };
  const auto better = [&](size_t a, size_t b) {
    if (balance == Balance::least_busy && less_busy(candidates[a], candidates[b])) {
      return true;
    }
    const bool busier = balance == Balance::least_busy && less_busy(candidates[b], candidates[a]);
    return !busier && credit_[a] > credit_[b];
  };
  std::optional<size_t> best;
  int64_t total = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (!candidates[i].usable) {
      continue;
    }
    total += candidates[i].weight;
    credit_[i] += candidates[i].weight;
    if (!best || better(i, *best)) {
      best = i;
    }
  }
  if (best) {
    credit_[*best] -= total;
  }
  return best;
}

}  // namespace quince::gateway
