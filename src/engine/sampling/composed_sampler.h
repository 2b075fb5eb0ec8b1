// Chooses one token as lazy MLX operations, for devices on which logits should stay: the steps of
// chain.h in the same order and by the same formulas as CpuSampler, but for DRY, which it refuses.
// Tokens of equal logits at a cut all stay, and draws come from MLX's generator: other tokens than
// CpuSampler's for one seed. Engine thread.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include <mlx/array.h>

#include "engine/sampling/bans.h"
#include "engine/sampling/chain.h"
#include "engine/sampling_params.h"

namespace quince {

struct ComposedRow {
  mlx::core::array id;                           // [1] int32
  mlx::core::array logprob;                      // [1] f32; NaN unless asked for
  std::optional<mlx::core::array> top_ids;       // [1, top] int32; -1 beyond what was asked for
  std::optional<mlx::core::array> top_logprobs;  // [1, top] f32
};

class ComposedSampler {
 public:
  // Throws UserError when the parameters ask for DRY.
  ComposedSampler(const SamplingParams& params, std::span<const int32_t> prompt, uint64_t seed);

  // logits [V] f32. top: width of the lists of likeliest tokens, at most V; 0: none.
  ComposedRow sample(const mlx::core::array& logits, const MaskWords* mask, int top);
  // words: a mask as an array, [(V + 31) / 32] uint32, that is known when the row is evaluated;
  // min_tokens and ignore_eos do not count beside it.
  ComposedRow sample_among(const mlx::core::array& logits, const mlx::core::array& words, int top);
  // Tokens that were chosen without sample(). Draws go on as if each had been one.
  void skip(std::span<const int32_t> tokens, int vocabulary);
  // What the row says about a token that somebody else chose; with its log probability in any case.
  ComposedRow report(const mlx::core::array& logits, int32_t token, int top) const;

 private:
  using array = mlx::core::array;

  array banned(array row, const MaskWords* mask);
  array among_allowed(array row);
  array biased(array row) const;
  ComposedRow choose(const array& logits, array row, int top);
  array ban_words(array row) const;
  array run(SamplerStep step, const array& row) const;
  array penalized(array row) const;
  array draw(array row);
  ComposedRow described(const array& logits, array token, bool logprob, int top) const;
  void accept(const array& token, int vocabulary);

  SamplingParams params_;
  uint64_t seed_;
  uint64_t step_ = 0;
  Chain chain_;
  std::optional<array> recent_;   // [window] int32; while the repetition penalty is on
  std::optional<array> counts_;   // [V] f32: times generated; while those penalties are on
  std::optional<array> allowed_;  // [V] bool
  std::vector<array> output_;     // the last generated tokens, as far as bad words look back
  std::optional<array> mu_;       // mirostat's, f32
};

}  // namespace quince
