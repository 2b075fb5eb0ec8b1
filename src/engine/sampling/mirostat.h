// Mirostat (Basu et al. 2020, arXiv:2007.14966): keeps the surprise of the output, in bits, near a
// target by choosing how many tokens stay in the choice. Version 1 estimates the exponent of Zipf's
// law from the likeliest 100 tokens and keeps the k likeliest; version 2 (the paper's algorithm 2)
// keeps those whose surprise is at most mu. Both start from mu = 2 tau. No MLX.
#pragma once

#include "engine/sampling/candidates.h"
#include "engine/sampling_params.h"

namespace quince {

class Mirostat {
 public:
  explicit Mirostat(const SamplingParams& params);

  // vocabulary: tokens of the whole row.
  void keep(Candidates& candidates, size_t vocabulary) const;
  // probability: of the chosen token among those kept.
  void learn(double probability);

 private:
  void keep_zipf(Candidates& candidates, size_t vocabulary) const;
  void keep_surprise(Candidates& candidates) const;

  int version_;
  double tau_;
  double eta_;
  double mu_;
};

}  // namespace quince
