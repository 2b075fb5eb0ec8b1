// What a forward step is given: token rows of one or more sequences.
#pragma once

#include <vector>

#include <mlx/array.h>

#include "cache/cache.h"

namespace quince {

// Consecutive rows of a batch that belong to one sequence; their positions follow on from the
// cache's length.
struct Segment {
  Cache* cache;
  int rows;
};

struct Batch {
  mlx::core::array tokens;  // [N] int32; may be an unevaluated array (the last step's samples)
  std::vector<Segment> segments;  // their rows add up to N
  std::vector<int> logit_rows;    // rows of the batch whose logits are wanted, ascending
  // Of these rows not the logits but what the head is applied to, f32 [logit_rows, hidden_size]:
  // the last layer's output behind the final norm.
  bool states = false;
};

}  // namespace quince
