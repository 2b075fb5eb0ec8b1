// Time as the gateway's policy sees it: given to it, so that tests say what time it is.
#pragma once

#include <algorithm>
#include <chrono>

namespace quince::gateway {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

// At most about 30 years either way: such a span may still be added to a time.
inline Clock::duration seconds(double count) {
  constexpr double kMost = 1e9;
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::clamp(count, -kMost, kMost)));
}
inline double in_seconds(Clock::duration span) {
  return std::chrono::duration<double>(span).count();
}

}  // namespace quince::gateway
