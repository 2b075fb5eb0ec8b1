#include "tokenizer/spellings.h"

#include <algorithm>
#include <set>

namespace quince {

namespace {

constexpr size_t kLongestTail = 20;

using Sequences = std::set<std::vector<Token>>;

}  // namespace

std::vector<std::vector<Token>> overlapping_sequences(
    const Tokenizer& tokenizer, std::span<const std::string> texts) {
  Sequences sequences;
  if (texts.empty()) {
    return {};
  }
  const auto tail_of = [&](const std::string& rest) {
    std::vector<Token> tail = tokenizer.encode(rest);
    tail.resize(std::min(tail.size(), kLongestTail));
    return tail;
  };
  for (Token id = 0; id < tokenizer.vocab_size(); ++id) {
    StreamDecoder decoder(tokenizer, {.skip_special = false, .continues = true});
    std::string piece = decoder.add(id);
    piece += decoder.finish();
    for (const std::string& text : texts) {
      if (text.empty()) {
        continue;
      }
      if (piece.find(text) != std::string::npos) {
        sequences.insert({id});
        continue;
      }
      // The piece ends with the first n bytes of the text.
      for (size_t n = 1; n < text.size() && n <= piece.size(); ++n) {
        const bool in_character = (static_cast<unsigned char>(text[n]) & 0xc0) == 0x80;
        if (!in_character && piece.ends_with(std::string_view(text).substr(0, n))) {
          std::vector<Token> sequence = {id};
          const std::vector<Token> tail = tail_of(text.substr(n));
          sequence.insert(sequence.end(), tail.begin(), tail.end());
          sequences.insert(std::move(sequence));
        }
      }
    }
  }
  return {sequences.begin(), sequences.end()};
}

std::vector<std::vector<Token>> word_sequences(
    const Tokenizer& tokenizer, std::span<const std::string> texts) {
  Sequences sequences;
  for (const std::string& text : texts) {
    for (const std::string& spelling : {text, " " + text}) {
      std::vector<Token> tokens = tokenizer.encode(spelling);
      if (!tokens.empty()) {
        sequences.insert(std::move(tokens));
      }
    }
  }
  return {sequences.begin(), sequences.end()};
}

}  // namespace quince
