#include "tokenizer/spellings.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "tokenizer/small_tokenizers.h"

namespace quince {
namespace {

using Sequence = std::vector<Token>;

bool has(const std::vector<Sequence>& sequences, const Sequence& wanted) {
  return std::find(sequences.begin(), sequences.end(), wanted) != sequences.end();
}

// Ids of the byte-level tokenizer: bytes, then he 256, ll 257, hell 258, hello 259, " w" 260,
// " wo" 261, or 262, " wor" 263, ld 264, " world" 265.
TEST(Spellings, TokensThatHoldTheTextOrEndWithItsBeginning) {
  const Tokenizer tokenizer = test::ByteLevel().make();
  const std::vector<std::string> l = {"l"};
  const auto one = overlapping_sequences(tokenizer, l);
  EXPECT_EQ(one, (std::vector<Sequence>{{'l'}, {257}, {258}, {259}, {264}, {265}}));
  const std::vector<std::string> low = {"lo w"};
  const auto cut = overlapping_sequences(tokenizer, low);
  EXPECT_TRUE(has(cut, {'l', 'o', 260}));
  EXPECT_TRUE(has(cut, {257, 'o', 260}));
  EXPECT_TRUE(has(cut, {258, 'o', 260}));
  EXPECT_TRUE(has(cut, {259, 260}));  // hello + " w"
  EXPECT_FALSE(has(cut, {264, 'o', 260}));
  EXPECT_EQ(cut.size(), 4u);
}

TEST(Spellings, CharactersAreNotCut) {
  const Tokenizer tokenizer = test::ByteLevel().make();
  const std::vector<std::string> text = {"\u00e9x"};
  for (const Sequence& sequence : overlapping_sequences(tokenizer, text)) {
    EXPECT_EQ(tokenizer.decode(sequence).find("\uFFFD"), std::string::npos);
  }
  EXPECT_TRUE(overlapping_sequences(tokenizer, {}).empty());
}

// A SentencePiece token's space is part of it, though decode() takes the first one away.
TEST(Spellings, SpacesOfSentencePiece) {
  const Tokenizer tokenizer(test::sentence_piece_json(), "test");
  const std::vector<std::string> text = {" f"};
  const Token fox = tokenizer.token_to_id("\u2581fox").value();
  EXPECT_TRUE(has(overlapping_sequences(tokenizer, text), {fox}));
}

TEST(Spellings, WordsAtTheBeginningAndBehindASpace) {
  const Tokenizer tokenizer = test::ByteLevel().make();
  const std::vector<std::string> words = {"world", "hello"};
  const auto sequences = word_sequences(tokenizer, words);
  EXPECT_EQ(sequences, (std::vector<Sequence>{{' ', 259}, {'w', 262, 264}, {259}, {265}}));
}

}  // namespace
}  // namespace quince
