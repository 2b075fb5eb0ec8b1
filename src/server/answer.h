// One answer on its way from tokens to what clients see of it: text without halves of characters,
// without what may become a stop text, without what is a reasoning or a tool call's markup. On one
// thread at a time; never waits.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/token_stream.h"
#include "server/openai/params.h"
#include "server/served_model.h"
#include "tokenizer/tokenizer.h"

namespace quince::server {

// What is new of an answer. Reasoning stands before the rest, a call where its `at` says.
struct Delta {
  std::string text;
  std::string reasoning;
  std::vector<ToolCallDelta> calls;
  std::vector<GeneratedToken> tokens;  // that made it, with their log probabilities; if asked for
  std::vector<Token> ids;              // that made it

  bool empty() const {
    return text.empty() && reasoning.empty() && calls.empty() && tokens.empty();
  }
  size_t shown_bytes() const;  // of the answer, however it is shown

  // Text and calls as they follow each other; no text is empty.
  void in_order(
      const std::function<void(std::string_view)>& on_text,
      const std::function<void(const ToolCallDelta&)>& on_call) const;
};

struct AnswerEnd {
  std::string finish_reason;             // "stop", "length", "tool_calls"
  std::optional<std::string> stop_text;  // the one that ended it
  FinishReason reason = FinishReason::none;
  GenerationStats stats;
  int tokens = 0;                      // that were generated, those of a stop text included
  int reasoning_tokens = 0;            // of them
  int calls = 0;                       // of tools
  std::vector<GeneratedToken> prompt;  // its tokens from the second on; with prompt_logprobs
};

class Answer {
 public:
  // stream: lives as long as this.
  Answer(TokenStream& stream, const ServedModel& model, const GenerationParams& params);

  // What has come since, of at most about max_bytes; with 1, of the next token that gives anything.
  // Throws what the engine threw.
  Delta take(size_t max_bytes);
  bool ended() const {
    return end_.has_value();
  }
  const AnswerEnd& end() const {  // once ended
    return *end_;
  }
  TokenStream& stream() {
    return stream_;
  }
  const TokenStream& stream() const {
    return stream_;
  }
  int tokens() const {
    return tokens_;
  }

 private:
  void take_token(GeneratedToken token, Delta& delta);
  void finish(Delta& delta);
  void finish_reading(Delta& delta);
  std::string piece_of(Token id);
  void emit(const std::string& text, Delta& delta);
  void read(const std::string& text, Delta& delta);
  void stop(FinishReason reason);

  TokenStream& stream_;
  StreamDecoder decoder_;
  StopMatcher matcher_;
  std::optional<AnswerReader> reader_;
  std::vector<std::pair<Token, std::string_view>> marks_;  // special tokens that are read
  bool one_call_;
  bool include_stop_;
  bool wants_tokens_;
  bool wants_prompt_;
  std::vector<GeneratedToken> held_tokens_;  // whose text is held back
  std::vector<Token> held_ids_;
  int tokens_ = 0;
  int reasoning_tokens_ = 0;
  std::optional<AnswerEnd> end_;
};

}  // namespace quince::server
