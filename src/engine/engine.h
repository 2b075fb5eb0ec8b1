// The narrow waist. Below it one thread owns the model, the KV caches and every MLX call; above it
// nothing knows a tensor. HTTP, CLI, batch jobs and bindings are its clients. All members may be
// called from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/cache.h"
#include "engine/sampling_params.h"
#include "models/model.h"

namespace quince {

enum class FinishReason { none, stop, length, cancelled, error };
const char* name(FinishReason reason); // "stop", "length", ...

struct GeneratedToken {
  int32_t id;
  float logprob; // of the chosen token under the raw distribution; NaN when not asked for
};

struct GenerationStats {
  int prompt_tokens = 0;
  int cached_tokens = 0; // of the prompt, found in a cache
  int generated_tokens = 0;
  double prompt_seconds = 0; // submit until the first token
  double generation_seconds = 0; // first token until the last
};

// The tokens of one request, pulled by its owner. Destroying it cancels the request.
class TokenStream {
 public:
  TokenStream(TokenStream&&) noexcept;
  TokenStream& operator=(TokenStream&&) noexcept;
  ~TokenStream();
  // Waits for the next token; nothing when the request has ended (then see finish_reason). Throws
  // what the engine threw for this request, once.
  std::optional<GeneratedToken> next();
  void cancel();
  FinishReason finish_reason() const; // none while running
  GenerationStats stats() const;

 private:
  friend class Engine;
  struct State;
  explicit TokenStream(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

// A conversation's cache that outlives a request: submit with the same session and the common token
// prefix is reused, the rest of it rebuilt.
class Session;

struct EngineOptions {
  int context_length = 0; // most tokens a sequence may hold; 0: the model's own
  CacheOptions cache;
  int prefill_chunk = 512; // prompt tokens a step
};

class Engine {
 public:
  // The loader runs on the engine thread; the constructor waits for it and rethrows its exception.
  Engine(std::function<std::unique_ptr<Model>()> loader, EngineOptions options);
  ~Engine(); // cancels what runs

  const ModelInfo& info() const;
  int context_length() const;

  std::shared_ptr<Session> make_session();
  // Throws UserError: empty prompt, prompt longer than the context (both numbers), bad parameters.
  TokenStream submit(
      std::vector<int32_t> prompt,
      SamplingParams params,
      std::shared_ptr<Session> session = nullptr);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace quince
