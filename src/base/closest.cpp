#include "base/closest.h"

#include <algorithm>
#include <numeric>

namespace quince {

std::optional<std::string> closest(
    std::string_view word, const std::vector<std::string>& candidates) {
  std::optional<std::string> best;
  size_t best_distance = std::max<size_t>(word.size() / 3, 1) + 1;
  for (const std::string& candidate : candidates) {
    // Edit distance with neighbouring swaps; three rows are enough.
    size_t columns = candidate.size() + 1;
    std::vector<size_t> before(columns), above(columns), row(columns);
    std::iota(above.begin(), above.end(), size_t{0});
    for (size_t i = 1; i <= word.size(); i++) {
      row[0] = i;
      for (size_t j = 1; j < columns; j++) {
        size_t replace = above[j - 1] + (word[i - 1] == candidate[j - 1] ? 0 : 1);
        row[j] = std::min({replace, above[j] + 1, row[j - 1] + 1});
        if (i > 1 && j > 1 && word[i - 1] == candidate[j - 2] && word[i - 2] == candidate[j - 1]) {
          row[j] = std::min(row[j], before[j - 2] + 1);
        }
      }
      std::swap(before, above);
      std::swap(above, row);
    }
    if (above.back() < best_distance) {
      best_distance = above.back();
      best = candidate;
    }
  }
  return best;
}

}  // namespace quince
