// How the next token is chosen. Neutral values cost nothing. Plain data.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace quince {

struct SamplingParams {
  float temperature = 0.8f;         // 0: greedy
  int top_k = 40;                   // 0: off
  float top_p = 0.95f;              // 1: off
  float min_p = 0.05f;              // 0: off
  float repetition_penalty = 1.0f;  // 1: off
  int repetition_window = 64;       // tokens looked back at; -1: all
  std::optional<uint64_t> seed;     // absent: random
  std::map<int32_t, float> logit_bias;
  bool logprobs = false;  // report each chosen token's log probability

  int max_tokens = -1;               // -1: until the end token or the context is full
  std::vector<int32_t> stop_tokens;  // ends generation; not part of the output

  // Throws UserError naming the field, its value and the allowed range.
  void check() const;
};

}  // namespace quince
