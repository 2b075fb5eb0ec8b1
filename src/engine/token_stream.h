// The tokens of one request, pulled by its owner. Bounded: the engine pauses a sequence whose owner
// does not read.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

namespace quince {

enum class FinishReason : uint8_t { none, stop, length, cancelled, error };
const char* name(FinishReason reason);  // "stop", "length", ...

struct GeneratedToken {
  int32_t id;
  float logprob;  // of this token under the unchanged distribution; NaN unless params.logprobs
};

struct GenerationStats {
  int prompt_tokens = 0;
  int cached_tokens = 0;  // of the prompt, found in the session's cache
  int generated_tokens = 0;
  double prompt_seconds = 0;      // start of work on the request until its first token
  double generation_seconds = 0;  // first token until the last
};

class StreamState;  // shared with the engine: engine/stream_state.h

class TokenStream {
 public:
  explicit TokenStream(std::shared_ptr<StreamState> state);
  TokenStream(TokenStream&&) noexcept = default;
  TokenStream& operator=(TokenStream&&) noexcept;
  ~TokenStream();  // cancels

  // Waits for the next token; nothing when the request has ended (then see finish_reason). Throws
  // what the engine threw for this request, once.
  std::optional<GeneratedToken> next();
  void cancel();                       // from any thread; next() then ends within one step
  FinishReason finish_reason() const;  // none while running
  GenerationStats stats() const;

 private:
  std::shared_ptr<StreamState> state_;
};

}  // namespace quince
