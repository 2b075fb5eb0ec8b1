// Texts that a grammar allows, found by walking at random over the tokens of its masks.
#pragma once

#include <algorithm>
#include <bit>
#include <iterator>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "constraint/constraint.h"

namespace quince::test {

inline bool allows(const TokenBits& bits, Token token) {
  const auto word = static_cast<size_t>(token) / 32;
  return word < bits.size() && (bits[word] >> (token % 32) & 1) != 0;
}

inline std::vector<Token> allowed_tokens(const TokenBits& bits) {
  std::vector<Token> tokens;
  for (size_t word = 0; word < bits.size(); ++word) {
    for (uint32_t left = bits[word]; left != 0; left &= left - 1) {
      tokens.push_back(static_cast<Token>(word * 32 + std::countr_zero(left)));
    }
  }
  return tokens;
}

// Whether a text of single-byte tokens is held to be complete.
inline bool takes(const Constraint& constraint, std::string_view text) {
  ConstraintMatcher matcher = constraint.begin();
  TokenBits bits((static_cast<size_t>(constraint.vocab_size()) + 31) / 32);
  ConstraintMatcher::Place place;
  for (const char c : text) {
    const Token token = static_cast<unsigned char>(c);
    if (place.complete) {
      return false;
    }
    place = matcher.mask(bits);
    if (!allows(bits, token)) {
      return false;
    }
    place = matcher.consume(std::vector<Token>{token});
  }
  return place.accepting;
}

class Walker {
 public:
  Walker(const Tokenizer& tokenizer, int vocab_size, uint32_t seed)
      : tokenizer_(tokenizer), random_(seed), bits_((static_cast<size_t>(vocab_size) + 31) / 32) {
    // What brings JSON, and most patterns, to an end. A quote, the first, does nearly always.
    const std::string texts[] = {
        "\"", "]", "}", ",", "0", "a", "@", "-", ":", ".", "A", "1", "D", "M"};
    closers_.assign(std::size(texts), -1);
    for (Token id = 0; id < tokenizer.vocab_size(); ++id) {
      const auto found =
          std::find(std::begin(texts), std::end(texts), tokenizer.decode(std::span(&id, 1)));
      if (found != std::end(texts) && closers_[found - std::begin(texts)] < 0) {
        closers_[found - std::begin(texts)] = id;
      }
    }
    std::erase(closers_, -1);
  }

  // free: tokens before it hurries to an end. Throws when it finds none.
  std::vector<Token> walk(ConstraintMatcher matcher, int free) {
    constexpr int kMost = 600;
    std::vector<Token> text;
    ConstraintMatcher::Place place;
    while (!place.complete) {
      if (chance(0.5)) {
        const std::vector<Token> forced = matcher.forced();
        if (!forced.empty()) {
          place = matcher.consume(forced);
          text.insert(text.end(), forced.begin(), forced.end());
          continue;
        }
      }
      place = matcher.mask(bits_);
      const bool hurry = static_cast<int>(text.size()) >= free;
      if (place.complete || (place.accepting && (hurry || chance(0.2)))) {
        break;
      }
      const Token token = choose(hurry);
      place = matcher.consume(std::vector<Token>{token});
      text.push_back(token);
      if (text.size() > kMost) {
        throw std::runtime_error("no end after: " + decode(text));
      }
    }
    return text;
  }

  std::string decode(const std::vector<Token>& tokens) const {
    StreamDecoder decoder(tokenizer_);
    std::string text;
    for (const Token token : tokens) {
      text += decoder.add(token);
    }
    return text + decoder.finish();
  }

 private:
  bool chance(double p) {
    return std::uniform_real_distribution<>(0, 1)(random_) < p;
  }

  Token choose(bool hurry) {
    const std::vector<Token> tokens = allowed_tokens(bits_);
    if (tokens.empty()) {
      throw std::runtime_error("no token is allowed");
    }
    if (hurry && chance(0.95)) {
      std::vector<Token> good;
      for (const Token closer : closers_) {
        if (allows(bits_, closer)) {
          good.push_back(closer);
        }
      }
      if (!good.empty() && good.front() == closers_.front()) {
        good.resize(std::min<size_t>(good.size(), 3));  // an object could go on with a quote
        std::erase_if(good, [&](Token t) {
          return std::find(closers_.begin(), closers_.begin() + 3, t) == closers_.begin() + 3;
        });
      }
      if (!good.empty()) {
        return any_of(good);
      }
    }
    return any_of(tokens);
  }

  Token any_of(const std::vector<Token>& tokens) {
    return tokens[std::uniform_int_distribution<size_t>(0, tokens.size() - 1)(random_)];
  }

  const Tokenizer& tokenizer_;
  std::mt19937 random_;
  TokenBits bits_;
  std::vector<Token> closers_;
};

}  // namespace quince::test
