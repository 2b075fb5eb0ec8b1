// Texts that cannot fit a model's context whatever their tokens are: refused by their size, because
// finding tens of millions of tokens would keep a worker from everybody else. Any thread.
#pragma once

#include <cstddef>
#include <mutex>
#include <string_view>

#include "tokenizer/tokenizer.h"

namespace quince::server {

struct ServedModel;

// The most bytes that one token stands for, where every text has a token for at least so many
// bytes; 0: tokens of this vocabulary may swallow any length (unknown characters that become one
// token, spaces that are dropped), so that sizes tell nothing. Looks at every token.
size_t longest_token(const Tokenizer& tokenizer);

// Finds it out once, when the first text comes that may be too long.
class TokenBound {
 public:
  size_t get(const Tokenizer& tokenizer) const;

 private:
  mutable std::once_flag once_;
  mutable size_t bytes_ = 0;
};

// field: the text's. Throws ApiError 400 context_length_exceeded.
void refuse_too_long(size_t bytes, const ServedModel& model, std::string_view field);

// The most that is turned into tokens, or back, for a client that wants to know them: a worker is
// busy with it for about a second (some seconds where it is one endless word), and others wait.
constexpr size_t kMostTextBytes = size_t{4} << 20;
constexpr size_t kMostTokens = size_t{1} << 20;
// field: the text's. Throws ApiError 400 string_above_max_length.
void refuse_long_text(size_t bytes, std::string_view field);

}  // namespace quince::server
