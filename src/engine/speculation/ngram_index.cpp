#include "engine/speculation/ngram_index.h"

#include <algorithm>

namespace quince {

// FNV-1a; what is found is compared, so a collision costs a guess and nothing else.
uint64_t NgramIndex::key(std::span<const int32_t> tokens, size_t end, int n) {
  uint64_t hash = 14695981039346656037u;
  for (const int32_t token : tokens.subspan(end - static_cast<size_t>(n), static_cast<size_t>(n))) {
    hash = (hash ^ static_cast<uint32_t>(token)) * 1099511628211u;
  }
  return hash;
}

// All but what stands at the very end: nothing follows it yet.
void NgramIndex::extend(std::span<const int32_t> tokens) {
  for (; seen_ < tokens.size(); ++seen_) {
    for (int n = kShortest; n <= kLongest && static_cast<size_t>(n) <= seen_; ++n) {
      places_[static_cast<size_t>(n - kShortest)][key(tokens, seen_, n)] =
          static_cast<uint32_t>(seen_);
    }
  }
}

NgramIndex::Guess NgramIndex::guess(std::span<const int32_t> tokens, int most) {
  extend(tokens);
  for (int n = kLongest; n >= kShortest; --n) {
    const auto length = static_cast<size_t>(n);
    if (tokens.size() <= length) {
      continue;
    }
    const auto& places = places_[static_cast<size_t>(n - kShortest)];
    const auto found = places.find(key(tokens, tokens.size(), n));
    if (found == places.end()) {
      continue;
    }
    const size_t begin = found->second;
    const auto last = tokens.last(length);
    if (!std::equal(
            last.begin(), last.end(), tokens.begin() + static_cast<int64_t>(begin - length))) {
      continue;
    }
    Guess guess;
    guess.matched = n;
    for (size_t i = begin; std::ssize(guess.tokens) < most; ++i) {
      guess.tokens.push_back(i < tokens.size() ? tokens[i] : guess.tokens[i - tokens.size()]);
    }
    return guess;
  }
  return {};
}

}  // namespace quince
