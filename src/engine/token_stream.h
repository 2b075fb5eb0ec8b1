// The tokens of one request, pulled by its owner. Bounded: the engine pauses a sequence whose owner
// does not read, and the others go on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace quince {

enum class FinishReason : uint8_t { none, stop, length, cancelled, deadline, error };
const char* name(FinishReason reason);  // "stop", "length", ...

struct TokenLogprob {
  int32_t id;
  float logprob;  // natural
};

struct GeneratedToken {
  int32_t id;
  float logprob;  // of this token under the unchanged distribution; NaN unless asked for
  std::vector<TokenLogprob> top = {};  // params.top_logprobs likeliest tokens, best first
};

struct GenerationStats {
  int prompt_tokens = 0;
  int cached_tokens = 0;  // of the prompt, found computed already
  int generated_tokens = 0;
  int drafted_tokens = 0;         // guessed, and run beside those that were sampled
  int accepted_tokens = 0;        // of them, those that were right
  bool begun = false;             // work on it; else it waits
  int preemptions = 0;            // times its cache was given up and computed anew
  double queue_seconds = 0;       // submitted until work on the request began
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
  // For owners that must not wait. notify: called whenever ready() becomes true, and at once if it
  // is; on the engine's thread, which waits for it, so it only passes the word on. It may be called
  // once more while on_ready(nullptr) returns.
  bool ready() const;  // next() will not wait
  void on_ready(std::function<void()> notify);
  void cancel();                       // from any thread; next() then ends within one step
  FinishReason finish_reason() const;  // none while running
  GenerationStats stats() const;
  // With params.prompt_logprobs: of the prompt's tokens from the second on, complete once next()
  // has given a token or nothing.
  std::vector<GeneratedToken> prompt_logprobs() const;

 private:
  std::shared_ptr<StreamState> state_;
};

}  // namespace quince
