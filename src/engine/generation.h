// One request on its way through the model: prompt in chunks, then token after token. Engine
// thread.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include <mlx/array.h>

#include "engine/sampling/sampler.h"
#include "engine/stream_state.h"
#include "models/model.h"

namespace quince {

// The cache of a conversation and the tokens that are in it.
struct Timeline {
  std::unique_ptr<Cache> cache;
  std::vector<int32_t> tokens;
};

struct Request {
  std::vector<int32_t> prompt;
  SamplingParams params;  // max_tokens resolved: never -1
  std::shared_ptr<StreamState> stream;
};

// Brings timeline to hold a prefix of prompt, at most prompt.size() - 1 tokens of it (the last
// token must be run to get logits). Returns how many it holds.
int reuse_prefix(Timeline& timeline, const std::vector<int32_t>& prompt);

// Runs the request to its end, pushing tokens into its stream; step n + 1 is started before token n
// is read. Throws what the model throws; the timeline is then cleared.
void generate(Model& model, Request& request, Timeline& timeline, int prefill_chunk);

}  // namespace quince
