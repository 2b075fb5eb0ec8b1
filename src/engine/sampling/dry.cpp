#include "engine/sampling/dry.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace quince {

namespace {

// Far beyond any logit, and still finite when the largest --repeat-penalty has multiplied it and
// the lowest temperature has divided it.
constexpr double kMostPenalty = 1e20;

// For every k the length of the longest common prefix of x and its part from k on (the Z-algorithm,
// Gusfield 1997), where x is the history read backwards: how much of its end also ends k tokens
// earlier.
void common_endings(std::span<const int32_t> history, std::vector<size_t>& z) {
  const size_t n = history.size();
  const auto x = [&](size_t i) { return history[n - 1 - i]; };
  z.assign(n, 0);
  size_t left = 0;
  size_t right = 0;  // x[left, right) equals x[0, right - left)
  for (size_t k = 1; k < n; ++k) {
    size_t length = k < right ? std::min(right - k, z[k - left]) : 0;
    while (k + length < n && x(length) == x(k + length)) {
      ++length;
    }
    z[k] = length;
    if (k + length > right) {
      left = k;
      right = k + length;
    }
  }
}

}  // namespace

Dry::Dry(const SamplingParams& params)
    : multiplier_(params.dry_multiplier),
      base_(params.dry_base),
      allowed_(static_cast<size_t>(params.dry_allowed_length)),
      window_(params.dry_penalty_last_n) {
  for (const auto& sequence : params.dry_sequence_breakers) {
    breakers_[sequence.front()].emplace_back(sequence.begin() + 1, sequence.end());
  }
}

// How many tokens stand behind the last breaker.
size_t Dry::unbroken(std::span<const int32_t> history) const {
  for (size_t after = 0; after < history.size(); ++after) {  // tokens behind a breaker's first one
    const auto found = breakers_.find(history[history.size() - 1 - after]);
    if (found == breakers_.end()) {
      continue;
    }
    const auto behind = history.last(after);
    std::optional<size_t> longest;
    for (const Tail& tail : found->second) {
      if (tail.size() <= after && std::equal(tail.begin(), tail.end(), behind.begin())) {
        longest = std::max(longest.value_or(0), tail.size());
      }
    }
    if (longest) {
      return after - *longest;
    }
  }
  return history.size();
}

bool Dry::is_breaker(int32_t token) const {
  const auto found = breakers_.find(token);
  return found != breakers_.end() &&
         std::any_of(found->second.begin(), found->second.end(), [](const Tail& tail) {
           return tail.empty();
         });
}

void Dry::apply(Candidates& candidates, std::span<const int32_t> history) {
  if (window_ >= 0 && history.size() > static_cast<size_t>(window_)) {
    history = history.last(static_cast<size_t>(window_));
  }
  if (history.size() <= allowed_) {
    return;
  }
  const size_t limit = unbroken(history);
  if (limit < allowed_) {
    return;
  }
  common_endings(history, repeats_);
  lengths_.clear();
  for (size_t k = 1; k < history.size(); ++k) {
    const size_t length = std::min(repeats_[k], limit);
    if (length >= allowed_) {
      size_t& longest = lengths_[history[history.size() - k]];  // came next at that time
      longest = std::max(longest, length);
    }
  }
  std::erase_if(lengths_, [&](const auto& entry) { return is_breaker(entry.first); });
  if (lengths_.empty()) {
    return;
  }
  const auto penalty = [&](size_t length) {
    const double punished = multiplier_ * std::pow(base_, static_cast<double>(length - allowed_));
    return static_cast<float>(std::min(punished, kMostPenalty));
  };
  if (candidates.whole()) {
    const std::span<float> row = candidates.changed_row();
    for (const auto& [token, length] : lengths_) {
      if (token >= 0 && static_cast<size_t>(token) < row.size()) {
        row[token] -= penalty(length);
      }
    }
    return;
  }
  for (Candidate& c : candidates.list()) {
    if (const auto found = lengths_.find(c.id); found != lengths_.end()) {
      c.logit -= penalty(found->second);
    }
  }
  candidates.disturbed();
}

}  // namespace quince
