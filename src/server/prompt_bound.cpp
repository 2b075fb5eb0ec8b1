#include "server/prompt_bound.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "server/errors.h"
#include "server/served_model.h"

namespace quince::server {

namespace {

// No text with fewer bytes a token is worth the question: most words are shorter.
constexpr size_t kSurelyTokenized = 16;

// One of each kind of character that normalizers treat in a way of their own.
constexpr std::string_view kProbes[] = {
    "a",
    " ",
    "\n",
    "\t",
    "\x01",
    "\xc3\xa9",           // e with an accent
    "e\xcc\x81",          // the same in two characters
    "\xc2\xad",           // soft hyphen
    "\xe2\x80\x8b",       // zero width space
    "\xe6\x97\xa5",       // a Chinese character
    "\xe1\x9a\xa0",       // a rune, which few vocabularies have
    "\xef\xb7\xba",       // one that NFKC makes eighteen of
    "\xf0\x9f\x98\x80"};  // an emoji

std::string repeated(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) {
    out += text;
  }
  return out;
}

}  // namespace

size_t longest_token(const Tokenizer& tokenizer) {
  size_t longest = 1;
  for (Token id = 0; id < tokenizer.vocab_size(); ++id) {
    longest = std::max(longest, tokenizer.token_bytes(id).size());
  }
  constexpr int kTimes = 2048;
  for (const std::string_view probe : kProbes) {
    const std::string text = repeated(probe, kTimes);
    if (tokenizer.encode(text).size() * longest < text.size()) {
      return 0;
    }
  }
  return longest;
}

size_t TokenBound::get(const Tokenizer& tokenizer) const {
  std::call_once(once_, [&] { bytes_ = longest_token(tokenizer); });
  return bytes_;
}

void refuse_too_long(size_t bytes, const ServedModel& model, std::string_view field) {
  const auto context = static_cast<size_t>(model.engine->context_length());
  if (bytes / kSurelyTokenized <= context) {
    return;
  }
  const size_t longest = model.token_bound.get(model.text.tokenizer);
  if (longest == 0 || bytes / longest <= context) {
    return;
  }
  throw ApiError(
      400,
      "invalid_request_error",
      fmt::format(
          "the prompt has {} bytes, which are more than {} tokens, and the context holds {}, "
          "prompt "
          "and answer together: shorten the prompt, or start the server with a larger --ctx-size",
          bytes,
          bytes / longest,
          context),
      std::string(field),
      "context_length_exceeded");
}

void refuse_long_text(size_t bytes, std::string_view field) {
  if (bytes > kMostTextBytes) {
    throw ApiError(
        400,
        "invalid_request_error",
        fmt::format(
            "{} has {} bytes, and at most {} are turned into tokens at once: send it in parts",
            field,
            bytes,
            kMostTextBytes),
        std::string(field),
        "string_above_max_length");
  }
}

}  // namespace quince::server
