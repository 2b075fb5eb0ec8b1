// Which of a model's upstreams a request goes to. Not for several threads at once.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "gateway/config.h"

namespace quince::gateway {

struct Candidate {
  int weight = 1;
  int in_flight = 0;    // requests that are there now, of all models
  bool usable = false;  // neither broken nor tried already
};

class Balancer {
 public:
  // Weighted: in every run of sum(weight) choices each gets its weight, spread evenly (the smooth
  // round robin of nginx). Least busy: the fewest requests for its weight; equals take turns.
  // Nothing: none is usable. Candidates keep their positions from call to call.
  std::optional<size_t> choose(Balance balance, std::span<const Candidate> candidates);

 private:
  std::vector<int64_t> credit_;
};

}  // namespace quince::gateway
