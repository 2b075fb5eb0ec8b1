#include "cli/generate.h"

#include <gtest/gtest.h>

#include "cli/tiny_tokenizer.h"

namespace quince::cli {
namespace {

// Hands out the tokens of a text, counting how many were taken.
struct Source {
  std::vector<Token> tokens;
  size_t taken = 0;
  std::optional<GeneratedToken> operator()() {
    if (taken == tokens.size()) {
      return std::nullopt;
    }
    return GeneratedToken{tokens[taken++], 0.0f};
  }
};

struct Result {
  GeneratedText text;
  std::vector<std::string> pieces;
  size_t taken = 0;
};

Result stream(
    const std::vector<Token>& tokens, const std::vector<std::string>& stops, bool cut = false) {
  Tokenizer tokenizer = test::tiny_tokenizer();
  Source source{tokens};
  Result result;
  result.text = stream_text(
      [&] { return source(); },
      tokenizer,
      stops,
      [&](std::string_view piece) { result.pieces.emplace_back(piece); },
      {},
      [cut] { return cut; });
  result.taken = source.taken;
  return result;
}

std::vector<Token> tokens_of(std::string_view text) {
  return test::tiny_tokenizer().encode(text);
}

TEST(StreamText, ShowsWholeCharacters) {
  Result result = stream(tokens_of("aé👩z"), {});
  EXPECT_EQ(result.text.text, "aé👩z");
  EXPECT_EQ(result.pieces, (std::vector<std::string>{"a", "é", "👩", "z"}));
  EXPECT_EQ(result.text.ids.size(), 8u);
  EXPECT_FALSE(result.text.stop_text);
}

TEST(StreamText, CutOffCharacterComesOutAtTheEnd) {
  std::vector<Token> tokens = tokens_of("x👩");
  tokens.pop_back();
  Result result = stream(tokens, {});
  EXPECT_EQ(result.text.text, "x\xef\xbf\xbd");
  EXPECT_EQ(result.pieces.back(), "\xef\xbf\xbd");
  // As in the server: it is a character that the model would have ended.
  result = stream(tokens, {}, true);
  EXPECT_EQ(result.text.text, "x");
  EXPECT_EQ(result.text.ids, tokens);
}

TEST(StreamText, SpecialTokensAreNotText) {
  std::vector<Token> tokens = tokens_of("ab");
  tokens.insert(tokens.begin() + 1, 257);
  Result result = stream(tokens, {});
  EXPECT_EQ(result.text.text, "ab");
  EXPECT_EQ(result.text.ids, (std::vector<Token>{'a', 257, 'b'}));
}

TEST(StreamText, StopsExactlyBeforeTheStopText) {
  Result result = stream(tokens_of("The quick brown fox"), {"zzz", "n f"});
  EXPECT_EQ(result.text.text, "The quick brow");
  EXPECT_EQ(result.text.stop_text, "n f");
  EXPECT_EQ(result.taken, std::string("The quick brown f").size()) << "nothing is read after it";
  std::string joined;
  for (const std::string& piece : result.pieces) {
    joined += piece;
  }
  EXPECT_EQ(joined, result.text.text);
}

TEST(StreamText, HeldBackTextComesOutWithoutAStop) {
  Result result = stream(tokens_of("a fo"), {"fox"});
  EXPECT_EQ(result.text.text, "a fo");
  EXPECT_FALSE(result.text.stop_text);
}

TEST(StreamText, StopTextInsideAnEmoji) {
  Result result = stream(tokens_of("ok 👩 no"), {"👩"});
  EXPECT_EQ(result.text.text, "ok ");
}

TEST(SpeedLine, SaysWhatIsKnown) {
  GenerationStats stats;
  stats.prompt_tokens = 12;
  stats.generated_tokens = 48;
  stats.prompt_seconds = 0.08;
  stats.generation_seconds = 0.25;
  EXPECT_EQ(
      speed_line(stats),
      "12 prompt tokens (150 tok/s), 48 generated (188 tok/s), first token 0.08 s");
  stats.cached_tokens = 12;
  stats.generated_tokens = 1;
  stats.generation_seconds = 0;
  EXPECT_EQ(
      speed_line(stats), "12 prompt tokens, 12 of them cached, 1 generated, first token 0.08 s");
}

TEST(HumanBytes, Units) {
  EXPECT_EQ(human_bytes(0), "0 bytes");
  EXPECT_EQ(human_bytes(999), "999 bytes");
  EXPECT_EQ(human_bytes(98362432), "94 MB");
  EXPECT_EQ(human_bytes(uint64_t{3} << 30), "3.0 GB");
  EXPECT_EQ(human_bytes(uint64_t{24} << 30), "24 GB");
}

}  // namespace
}  // namespace quince::cli
