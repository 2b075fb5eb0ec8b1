// The pages that caches of one model, with one set of options, share. No MLX.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace quince {

// Page i is the positions [i * kCachePage, (i + 1) * kCachePage).
constexpr int kCachePage = 32;

// A token at position t looks at positions p < keep and p > t - window at the most.
struct CacheReach {
  int64_t window = std::numeric_limits<int64_t>::max();
  int64_t keep = 0;
};

// The first position behind the kept ones that a token at position t looks at.
inline int64_t seen_from(const CacheReach& reach, int64_t t) {
  return t <= reach.window ? 0 : t - reach.window + 1;
}

// Of pages 0, 1, ... that hold so many tokens, some of which layers with a window have forgotten:
// the longest beginning that finds everything it looks at. A shorter one ends where a page does.
int64_t usable_tokens(
    const CacheReach& reach, int64_t page_tokens, const std::vector<bool>& whole, int64_t tokens);

}  // namespace quince
