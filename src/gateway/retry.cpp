#include "gateway/retry.h"

#include <algorithm>

namespace quince::gateway {

Health health(Outcome outcome) {
  switch (outcome) {
    case Outcome::answered:
    case Outcome::client_error:
    case Outcome::too_long:
      return Health::good;
    case Outcome::not_reached:
    case Outcome::unavailable:
    case Outcome::failed:
    case Outcome::refused_us:
    case Outcome::broke:
    case Outcome::slow:
    case Outcome::died:
      return Health::bad;
    case Outcome::abandoned:
      return Health::unknown;
  }
  return Health::unknown;
}

Step next_step(Outcome outcome, const Situation& situation, const ModelConfig& model) {
  const auto fall_back = [&](bool wanted) {
    return wanted && situation.fallback_left ? Step::fall_back : Step::give_up;
  };
  switch (outcome) {
    case Outcome::answered:
    case Outcome::client_error:
    case Outcome::died:
    case Outcome::abandoned:
      return Step::done;
    case Outcome::too_long:
      return fall_back(model.on_context);
    case Outcome::slow:
      return fall_back(model.on_latency);
    case Outcome::not_reached:
    case Outcome::unavailable:
      if (situation.another_upstream && situation.retries_left > 0 && situation.within_budget) {
        return Step::retry;
      }
      return fall_back(model.on_error);
    case Outcome::failed:
    case Outcome::refused_us:
    case Outcome::broke:
      return fall_back(model.on_error);
  }
  return Step::give_up;
}

void RetryBudget::request(double share) {
  tokens_ = std::min(kMost, tokens_ + share);
}

}  // namespace quince::gateway
