// One request on its way through the model. Engine thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cache/cache.h"
#include "constraint/constraint_state.h"
#include "engine/engine.h"
#include "engine/sampling/sampler.h"
#include "engine/scheduler.h"
#include "engine/stream_state.h"

namespace quince {

struct Request {
  std::vector<int32_t> prompt;
  SamplingParams params;  // max_tokens resolved: never -1
  RequestOptions options;
  std::shared_ptr<StreamState> stream;
  std::shared_ptr<ConstraintState> constraint = nullptr;
};

struct Sequence {
  SequenceId id = 0;
  Request request;
  std::unique_ptr<Cache> cache;
  std::unique_ptr<Sampler> sampler;
  std::unique_ptr<Sampler> scorer;  // reports on the prompt's tokens; with prompt_logprobs
  std::vector<int32_t> tokens;      // prompt, and what has been sampled and read
  int sampled = 0;                  // calls of the sampler, read or not
  std::vector<int32_t> draft;       // for the next step, or in the one that is under way
  bool paused = false;
  std::optional<ReasoningWatch> reasoning;
  int64_t generated() const {
    return static_cast<int64_t>(tokens.size() - request.prompt.size());
  }

  std::chrono::steady_clock::time_point submitted;
  std::chrono::steady_clock::time_point started;  // of its first step
  std::chrono::steady_clock::time_point first_token;
  GenerationStats stats;
};

}  // namespace quince
