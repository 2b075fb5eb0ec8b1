#include <random>

#include <gtest/gtest.h>

#include "tokenizer/tokenizer.h"

namespace quince {
namespace {

struct Result {
  std::string text;
  std::optional<std::string> stop;
  bool operator==(const Result&) const = default;
};

// Feeds the text in the given pieces.
Result match(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopMatcher matcher(stops);
  Result result;
  for (const std::string& piece : pieces) {
    result.text += matcher.add(piece);
  }
  result.text += matcher.finish();
  result.stop = matcher.stop_string();
  return result;
}

TEST(StopMatcher, CutsBeforeTheStopString) {
  const std::vector<std::string> words{
      "The", " quick", " br", "own", " fox", " jumps", " over", "👩"};
  const auto text = [&](std::vector<std::string> stops) { return match(stops, words).text; };
  EXPECT_EQ(text({"own fo"}), "The quick br");
  EXPECT_EQ(text({"n f", "zzz"}), "The quick brow");
  EXPECT_EQ(text({"brown"}), "The quick ");
  EXPECT_EQ(text({"jumps over"}), "The quick brown fox ");
  EXPECT_EQ(text({"over", "fox", "zzz", "x j"}), "The quick brown ");
  EXPECT_EQ(text({""}), "The quick brown fox jumps over👩");
  EXPECT_EQ(text({"👩"}), "The quick brown fox jumps over");
  EXPECT_EQ(text({}), "The quick brown fox jumps over👩");
}

TEST(StopMatcher, TheFirstCompleteCountsThenTheLongest) {
  EXPECT_EQ(match({"abc", "b"}, {"abc"}), (Result{"a", "b"}));
  EXPECT_EQ(match({"bc", "abc", "c"}, {"xabc"}), (Result{"x", "abc"}));
  EXPECT_EQ(match({"aab"}, {"a", "a", "a", "b"}), (Result{"a", "aab"}));
}

TEST(StopMatcher, NothingAfterAMatch) {
  StopMatcher matcher({"end"});
  EXPECT_EQ(matcher.add("the e"), "the ");
  EXPECT_FALSE(matcher.stopped());
  EXPECT_EQ(matcher.add("nd and more"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.add("text"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, AnyCutGivesTheSame) {
  std::mt19937 random(3);
  for (int round = 0; round < 20000; ++round) {
    const auto word = [&](size_t most) {
      std::string out(random() % most, ' ');
      for (char& c : out) {
        c = static_cast<char>('a' + random() % 2);
      }
      return out;
    };
    const std::vector<std::string> stops{word(5), word(4), word(6)};
    const std::string text = word(20);
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      const size_t size = 1 + random() % 4;
      pieces.push_back(text.substr(at, size));
      at += size;
    }
    EXPECT_EQ(match(stops, pieces), match(stops, {text})) << text;
  }
}

}  // namespace
}  // namespace quince
