// Tokens that a step must not choose, whatever their logits: they become -infinity before any other
// step, and nothing brings them back. In this order:
//   the mask of the step (constrained decoding);
//   allowed_token_ids;
//   end tokens with ignore_eos (llama.cpp's meaning: they are never chosen), and everything that
//     ends generation before min_tokens (vLLM's) - unless the mask leaves nothing else;
//   bad_words: the last token of a sequence whose others the output ends with (vLLM's: the prompt
//     does not count).
// Then logit_bias is added (OpenAI's). No MLX.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "engine/sampling/candidates.h"
#include "engine/sampling_params.h"

namespace quince {

using MaskWords = std::vector<uint32_t>;  // bit t % 32 of word t / 32 allows token t

class Bans {
 public:
  explicit Bans(const SamplingParams& params);

  // mask: null allows everything. generated: the output so far.
  void apply(
      Candidates& candidates, const MaskWords* mask, std::span<const int32_t> generated) const;

 private:
  std::span<const int32_t> banned_ends(size_t generated) const;

  MaskWords allowed_;              // empty: all
  std::vector<int32_t> always_;    // ignore_eos
  std::vector<int32_t> at_first_;  // min_tokens
  size_t min_tokens_;
  std::vector<std::vector<int32_t>> bad_words_;
  std::vector<std::pair<int32_t, float>> bias_;
};

// The ids as a mask.
MaskWords mask_of(std::span<const int32_t> ids);

// The tokens that complete a bad word when they follow.
std::vector<int32_t> completing(
    std::span<const std::vector<int32_t>> bad_words, std::span<const int32_t> generated);

}  // namespace quince
