// DRY, "don't repeat yourself" (p-e-w, text-generation-webui pull request 5637; sequence breakers
// as in koboldcpp pull request 982 and llama.cpp pull request 9702). A token that would extend a
// sequence which already stands earlier in the last dry_penalty_last_n tokens loses
//   multiplier * base ^ (length of what is repeated already - allowed length)
// of its logit, where that length reaches the allowed one. A breaker ends the sequence; tokens that
// are breakers by themselves are never punished. No MLX.
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "engine/sampling/candidates.h"
#include "engine/sampling_params.h"

namespace quince {

class Dry {
 public:
  explicit Dry(const SamplingParams& params);

  // history: prompt and output. Linear in the tokens looked back at.
  void apply(Candidates& candidates, std::span<const int32_t> history);

 private:
  using Tail = std::vector<int32_t>;  // of a breaker, behind its first token

  size_t unbroken(std::span<const int32_t> history) const;
  bool is_breaker(int32_t token) const;

  double multiplier_;
  double base_;
  size_t allowed_;
  int window_;  // -1: all
  std::unordered_map<int32_t, std::vector<Tail>> breakers_;
  std::vector<size_t> repeats_;
  std::unordered_map<int32_t, size_t> lengths_;
};

}  // namespace quince
