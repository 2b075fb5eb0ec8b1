// The sampling step as a lazy array, so that the next forward step can be built and started before
// anybody has read this token. Engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <mlx/array.h>

#include "base/thread_pool.h"
#include "constraint/constraint_state.h"
#include "engine/sampling/bans.h"
#include "engine/sampling_params.h"

namespace quince {

// One request's sampler. The state (draw counter, penalty window) advances when arrays are
// evaluated, in the order of the calls of sample_rows().
class Sampler {
 public:
  virtual ~Sampler() = default;
  // Throws what went wrong in the nth call (the first is 1), whose arrays have been evaluated; its
  // token is 0 then. A later call may have failed already: nobody asked for that.
  virtual void check(int n) const = 0;
  // Of the drafted tokens in its last rows the first `right` were chosen: it goes on from there.
  virtual void settle(int right) = 0;
};

// For the CPU device a sampler around CpuSampler, elsewhere one of MLX's own operations, which
// knows all parameters but DRY: then it throws a UserError. prompt: for what looks back at it.
std::unique_ptr<Sampler> make_sampler(
    const SamplingParams& params, std::span<const int32_t> prompt, mlx::core::Device device);

struct SampledRows {
  mlx::core::array ids;       // [R] int32
  mlx::core::array logprobs;  // [R] f32; NaN unless the request wants_logprobs()
  // [R, N], N the largest top_logprobs of the rows, best first; absent when that is 0. Rows that
  // asked for fewer, or have fewer tokens, end with kNoToken.
  std::optional<mlx::core::array> top_ids;       // int32
  std::optional<mlx::core::array> top_logprobs;  // f32
};

constexpr int32_t kNoToken = -1;

// Which tokens a step may choose: bit t % 32 of word t / 32 allows token t. Tokens beyond the last
// word are not allowed. Applied before everything else, so that no other parameter brings a token
// back; when nothing is left, the step fails with a UserError (see Sampler::check).
using TokenMask = std::shared_ptr<const MaskWords>;

struct SampleRow {
  Sampler* sampler;
  TokenMask mask;  // of this step alone; null: all tokens. Kept until the step has been evaluated
  // Not kNoToken: nothing is chosen. The row gives this token, its log probability and the
  // likeliest others; the sampler does not advance, and may stand in several such rows of a step.
  int32_t given = kNoToken;
  // Absent, or what the token is held to as the answer's position-th. Asked while the step is
  // evaluated, when the token before is known, and told the choice; beside it mask is not looked
  // at. Where the answer has ended the token means nothing.
  std::shared_ptr<ConstraintState> constraint = nullptr;
  int64_t position = 0;
  // Not kNoToken: the next row is the same sampler's, and is about what comes behind this token.
  // When another one is chosen that row, and those that follow on it, mean nothing. The sampler
  // then needs settle() before its next step. Not beside a constraint.
  int32_t draft = kNoToken;
};

// One step of R requests, whose samplers were made for the same device: logits [R, V] f32. On the
// CPU device it is one primitive, and the rows are shared out over the pool.
SampledRows sample_rows(
    const mlx::core::array& logits,
    std::span<const SampleRow> rows,
    const std::shared_ptr<ThreadPool>& pool);

}  // namespace quince
