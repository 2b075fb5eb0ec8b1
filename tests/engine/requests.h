// Requests as most tests of the engine make them.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/sampling_params.h"
#include "engine/token_stream.h"

namespace quince::test {

inline SamplingParams greedy(int max_tokens = -1) {
  SamplingParams params;
  params.temperature = 0.0f;
  params.max_tokens = max_tokens;
  return params;
}

// Nothing but the temperature.
inline SamplingParams unfiltered() {
  SamplingParams params;
  params.temperature = 1.0f;
  params.top_k = 0;
  params.top_p = 1.0f;
  params.min_p = 0.0f;
  return params;
}

inline std::vector<int32_t> collect(TokenStream& stream) {
  std::vector<int32_t> ids;
  while (const auto token = stream.next()) {
    ids.push_back(token->id);
  }
  return ids;
}

}  // namespace quince::test
