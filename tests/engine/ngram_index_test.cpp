#include "engine/speculation/ngram_index.h"

#include <gtest/gtest.h>

namespace quince {
namespace {

using Tokens = std::vector<int32_t>;

TEST(NgramIndex, TheTextBehindTheLastPlaceWhereTheSameStood) {
  NgramIndex index;
  const Tokens tokens = {1, 2, 3, 4, 9, 2, 3, 5, 6, 7, 8, 2, 3};
  const auto guess = index.guess(tokens, 3);
  EXPECT_EQ(guess.matched, 2);
  EXPECT_EQ(guess.tokens, (Tokens{5, 6, 7}));
}

TEST(NgramIndex, LongerMatchesCountMoreThanLaterOnes) {
  NgramIndex index;
  const Tokens tokens = {1, 2, 3, 4, 50, 9, 3, 4, 60, 7, 2, 3, 4};
  const auto guess = index.guess(tokens, 1);
  EXPECT_EQ(guess.matched, 3);
  EXPECT_EQ(guess.tokens, (Tokens{50}));
}

TEST(NgramIndex, GoesOnRepeating) {
  NgramIndex index;
  const Tokens tokens = {7, 8, 7, 8, 7, 8};
  EXPECT_EQ(index.guess(tokens, 5).tokens, (Tokens{7, 8, 7, 8, 7}));
}

TEST(NgramIndex, GrowsWithTheText) {
  NgramIndex index;
  Tokens tokens = {1, 2, 3};
  EXPECT_EQ(index.guess(tokens, 4).matched, 0);
  tokens.insert(tokens.end(), {5, 1, 2});
  EXPECT_EQ(index.guess(tokens, 2).tokens, (Tokens{3, 5}));
  tokens.insert(tokens.end(), {4, 1, 2});
  EXPECT_EQ(index.guess(tokens, 2).tokens, (Tokens{4, 1}));
  EXPECT_EQ(NgramIndex().guess({}, 3).matched, 0);
}

}  // namespace
}  // namespace quince
