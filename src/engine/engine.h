// The narrow waist. Below it one thread owns the model, the KV caches and every MLX call; above it
// nothing knows a tensor. HTTP, CLI, batch jobs and bindings are its clients. All members may be
// called from any thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cache/cache.h"
#include "engine/sampling_params.h"
#include "engine/token_stream.h"
#include "models/model.h"

namespace quince {

// A conversation: its cache outlives a request. Submitting with the same session reuses the common
// prefix of the tokens and rebuilds the rest. One request at a time (a second one waits).
class Session;

struct EngineOptions {
  int context_length = 0;  // most tokens a sequence may hold; 0: the model's own
  CacheOptions cache;
  int prefill_chunk = 512;  // prompt tokens a step, at least 1
};

class Engine {
 public:
  // The loader runs on the engine thread; the constructor waits for it and rethrows its exception.
  Engine(std::function<std::unique_ptr<Model>()> loader, EngineOptions options);
  ~Engine();  // cancels what runs

  const ModelInfo& info() const;
  int context_length() const;

  std::shared_ptr<Session> make_session();

  // Throws UserError: empty prompt, token outside the vocabulary, prompt that leaves no room in the
  // context (both numbers), bad parameters.
  TokenStream submit(
      std::vector<int32_t> prompt,
      SamplingParams params,
      std::shared_ptr<Session> session = nullptr);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quince
