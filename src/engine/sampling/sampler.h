// The sampling step as a lazy array, so that the next forward step can be built and started before
// anybody has read this token. Engine thread.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include <mlx/array.h>

#include "engine/sampling_params.h"

namespace quince {

// One request's sampler. The state (draw counter, penalty window) advances when arrays are
// evaluated, in the order in which sample() was called.
class Sampler {
 public:
  virtual ~Sampler() = default;
  // logits [1, V] f32 -> token [1] int32 and its log probability [1] f32 (NaN unless
  // params.logprobs).
  virtual std::pair<mlx::core::array, mlx::core::array> sample(const mlx::core::array& logits) = 0;
};

// On the CPU device one primitive around CpuSampler; elsewhere MLX's own operations.
// prompt: tokens that the repetition penalty looks back at.
std::unique_ptr<Sampler> make_sampler(
    const SamplingParams& params, std::span<const int32_t> prompt, mlx::core::Device device);

}  // namespace quince
