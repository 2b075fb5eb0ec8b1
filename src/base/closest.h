// The nearest of several names to one that is mistyped, for "did you mean".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quince {

// The candidate nearest to word by edit distance, when near enough to be a slip of the fingers.
std::optional<std::string> closest(
    std::string_view word, const std::vector<std::string>& candidates);

}  // namespace quince
