// From tokens to text on the screen: decodes a stream of tokens piece by piece, holds back what may
// become a stop text, and keeps the whole.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/token_stream.h"
#include "tokenizer/tokenizer.h"

namespace quince::cli {

// The next token, or nothing at the end: TokenStream::next as a function, so that tests need no
// model.
using TokenSource = std::function<std::optional<GeneratedToken>()>;
using ShowText = std::function<void(std::string_view piece)>;

struct GeneratedText {
  std::string text;                      // what was shown
  std::vector<Token> ids;                // all tokens taken, those of a stop text included
  std::vector<GeneratedToken> logprobs;  // of those tokens, where they came with a log probability
  std::optional<std::string>
      stop_text;  // the one that ended it; the source is not read any further
};

// was_cut: asked when there are no more tokens, whether more would have come. A character that was
// begun is then left out; else it is broken, which is what the model wrote.
GeneratedText stream_text(
    const TokenSource& next,
    const Tokenizer& tokenizer,
    const std::vector<std::string>& stops,
    const ShowText& show,
    DecodeOptions how,
    const std::function<bool()>& was_cut);

// "12 prompt tokens (210 tok/s), 48 generated (187 tok/s), first token 0.08 s". Rates that cannot
// be known (no time passed, one token) are left out.
std::string speed_line(const GenerationStats& stats);

// Tokens per second: of the prompt (those not found in a cache), and of generation (after the first
// token). 0 when unknown.
double prompt_rate(const GenerationStats& stats);
double generation_rate(const GenerationStats& stats);

// "3.1 GB", "98 MB": powers of 1024 under their everyday names, as the OS shows memory.
std::string human_bytes(uint64_t bytes);

}  // namespace quince::cli
