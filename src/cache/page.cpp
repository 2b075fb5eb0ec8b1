#include "cache/page.h"

#include <algorithm>

namespace quince {

int64_t usable_tokens(
    const CacheReach& reach, int64_t page_tokens, const std::vector<bool>& whole, int64_t tokens) {
  const auto [window, keep] = reach;
  std::vector<int64_t> gap_end{0};  // of the last page before page i that is not whole
  for (size_t i = 0; i < whole.size(); ++i) {
    const auto start = static_cast<int64_t>(i) * page_tokens;
    if (!whole[i] && start < keep) {
      tokens = std::min(tokens, start);
    }
    gap_end.push_back(whole[i] ? gap_end.back() : start + page_tokens);
  }
  const auto pages = [&](int64_t n) {
    return static_cast<size_t>((n + page_tokens - 1) / page_tokens);
  };
  while (tokens > 0 && gap_end[pages(tokens)] > seen_from(reach, tokens)) {
    tokens = (tokens - 1) / page_tokens * page_tokens;
  }
  return tokens;
}

}  // namespace quince
