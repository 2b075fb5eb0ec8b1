#include "tokenizer/tokenizer.h"

#include <ctime>
#include <random>

#include <gtest/gtest.h>

#include "base/error.h"
#include "tokenizer/small_tokenizers.h"
#include "tokenizer/utf8.h"

namespace quince {
namespace {

using test::ByteLevel;
using test::sentence_piece_json;
using test::unigram_json;
using Ids = std::vector<Token>;

constexpr const char* kReplacement = "\xef\xbf\xbd";

TEST(Tokenizer, MergesByRank) {
  const Tokenizer tokenizer = ByteLevel().make();
  EXPECT_EQ(tokenizer.encode("hello world"), (Ids{259, 265}));
  EXPECT_EQ(tokenizer.encode("hel"), (Ids{256, 'l'}));
  EXPECT_EQ(tokenizer.encode(""), Ids{});
  EXPECT_EQ(tokenizer.vocab_size(), 269);
  EXPECT_EQ(tokenizer.token_to_id("Ġworld"), 265);
  EXPECT_EQ(tokenizer.id_to_token(265), "Ġworld");
  EXPECT_EQ(tokenizer.token_to_id("no such"), std::nullopt);
  EXPECT_EQ(tokenizer.id_to_token(269), std::nullopt);
  EXPECT_EQ(tokenizer.id_to_token(-1), std::nullopt);
}

TEST(Tokenizer, SpecialTokensOnlyWhereAllowed) {
  const Tokenizer tokenizer = ByteLevel().make();
  const std::string text = "<s>hello<|end|>";
  EXPECT_EQ(tokenizer.encode(text, {.parse_special = true}), (Ids{266, 259, 267}));
  const Ids plain = tokenizer.encode(text);
  EXPECT_EQ(plain.size(), 3 + 1 + 7u);
  EXPECT_EQ(tokenizer.decode(plain), text);
  for (Token id : plain) {
    EXPECT_FALSE(tokenizer.is_special(id));
  }
  // A token that is not special is always itself.
  EXPECT_EQ(tokenizer.encode("<think>"), Ids{268});
  EXPECT_FALSE(tokenizer.is_special(268));
  const TextRange end[] = {{8, 15}};
  EXPECT_EQ(tokenizer.encode(text, end).back(), 267);
  EXPECT_EQ(tokenizer.encode(text, end).front(), '<');
  const TextRange half[] = {{0, 2}, {2, 15}};
  EXPECT_EQ(tokenizer.encode(text, half).front(), '<');
  EXPECT_EQ(tokenizer.special_tokens(), (std::vector<std::string>{"<s>", "<|end|>"}));
}

TEST(Tokenizer, BeginningTokenOnce) {
  for (const Tokenizer& tokenizer :
       {ByteLevel().make(), Tokenizer(sentence_piece_json(), "test")}) {
    const EncodeOptions raw{.add_special = true, .parse_special = true};
    EXPECT_EQ(tokenizer.encode("", raw).size(), 1u);
    EXPECT_EQ(tokenizer.encode("<s>", raw).size(), 1u);
    const Token bos = *tokenizer.token_to_id("<s>");
    const Ids once = tokenizer.encode("<s>A", raw);
    EXPECT_EQ(once, tokenizer.encode("A", raw));
    EXPECT_EQ(once.front(), bos);
  }
  ByteLevel none;
  none.vocabulary.prefix.clear();
  EXPECT_EQ(none.make().encode("A", {.add_special = true}), Ids{'A'});
}

TEST(Tokenizer, SentencePieceFromJson) {
  const Tokenizer tokenizer(sentence_piece_json(), "test");
  const Ids ids = tokenizer.encode("The fox é");
  EXPECT_EQ(ids.size(), 5u);
  EXPECT_EQ(tokenizer.id_to_token(ids[0]), "▁The");
  EXPECT_EQ(tokenizer.id_to_token(ids[1]), "▁fox");
  EXPECT_EQ(tokenizer.id_to_token(ids[3]), "<0xC3>");
  EXPECT_EQ(tokenizer.decode(ids), "The fox é");
  EXPECT_EQ(tokenizer.token_to_id("<0xC3>"), ids[3]);
  EXPECT_EQ(tokenizer.decode(Ids{1, ids[0], 2}), "The");
  EXPECT_EQ(tokenizer.decode(Ids{1, ids[0], 2}, {.skip_special = false}), "<s> The</s>");
  EXPECT_EQ(tokenizer.decode(Ids{100000, -5, ids[0]}), "The");
}

TEST(Tokenizer, BrokenBytesBecomeOneMark) {
  const Tokenizer tokenizer = ByteLevel().make();
  const std::string mark = kReplacement;
  EXPECT_EQ(tokenizer.decode(Ids{0xf0, 0x9f, 0x91, 0xa9}), "\xf0\x9f\x91\xa9");
  EXPECT_EQ(tokenizer.decode(Ids{'a', 0xf0, 0x9f, 0x91}), "a" + mark);
  EXPECT_EQ(tokenizer.decode(Ids{0xf0, 0x9f, 'b'}), mark + "b");
  EXPECT_EQ(tokenizer.decode(Ids{0xf0, 0xf0, 0xff}), mark + mark + mark);
  EXPECT_EQ(tokenizer.decode(Ids{0xed, 0xa0, 0x80}), mark + mark + mark);  // a surrogate
  // What comes in broken is mended first.
  EXPECT_EQ(
      tokenizer.decode(tokenizer.encode("a\xff"
                                        "b")),
      "a" + mark + "b");
}

// TOK-03: a character that breaks off is one mark in every kind of vocabulary.
TEST(Tokenizer, ByteFallbackOfForeignModels) {
  const std::string mark = kReplacement;
  for (const std::string& json : {sentence_piece_json(), unigram_json()}) {
    const Tokenizer tokenizer(json, "test");
    const auto byte = [](int value) { return static_cast<Token>(3 + value); };
    const Ids the = tokenizer.encode("The");
    ASSERT_EQ(the.size(), 1u);
    Ids ids = the;
    for (const int value : {0xf0, 0x9f, 0x91}) {
      ids.push_back(byte(value));
      EXPECT_EQ(tokenizer.decode(ids), "The" + mark);
    }
    ids.push_back(byte(0xa9));
    EXPECT_EQ(tokenizer.decode(ids), "The\xf0\x9f\x91\xa9");
    // Good bytes beside broken ones stay what they are.
    EXPECT_EQ(tokenizer.decode(Ids{byte(0x7f), byte(0xac), byte('a')}), "\x7f" + mark + "a");
    EXPECT_EQ(tokenizer.decode(tokenizer.encode("The fox \x01 é")), "The fox \x01 é");
  }
}

TEST(Tokenizer, ByteLevelWithTheDecoderOfAnotherFamily) {
  const Tokenizer tokenizer(test::byte_level_with_foreign_decoder_json(), "test");
  const Ids ids = tokenizer.encode("a a é\n");
  EXPECT_EQ(ids, (Ids{'a', 256, ' ', 0xc3, 0xa9, '\n'}));
  EXPECT_EQ(tokenizer.decode(ids), "a a é\n");
  EXPECT_EQ(tokenizer.decode(Ids{256, 256}), " a a");
}

TEST(Tokenizer, BadFilesAreSaid) {
  for (const char* json : {"", "{", "[]", "{\"model\": 3}", "{\"model\": {\"type\": \"BPE\"}}"}) {
    try {
      Tokenizer tokenizer(json, "broken.json");
      ADD_FAILURE() << json;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("broken.json"), std::string::npos);
    }
  }
  Vocabulary empty;
  EXPECT_THROW(Tokenizer(empty, "empty"), UserError);
  ByteLevel lists;
  lists.vocabulary.types.pop_back();
  EXPECT_THROW(lists.make(), UserError);
  ByteLevel outside;
  outside.vocabulary.prefix = {100000};
  EXPECT_THROW(outside.make(), UserError);
  ByteLevel pattern;
  pattern.vocabulary.splits = {"("};
  EXPECT_THROW(pattern.make(), UserError);
}

// Each text in every way of cutting and in any order of tokens: the stream gives what decode gives,
// never part of a character.
TEST(StreamDecoder, ConcatenationIsDecode) {
  std::mt19937 random(7);
  const Tokenizer tokenizers[] = {
      ByteLevel().make(),
      Tokenizer(sentence_piece_json(), "test"),
      Tokenizer(unigram_json(), "test")};
  for (const Tokenizer& tokenizer : tokenizers) {
    for (int round = 0; round < 3000; ++round) {
      Ids ids(random() % 24);
      for (Token& id : ids) {
        const auto size = static_cast<uint32_t>(tokenizer.vocab_size());
        // Bytes that begin and continue characters often, the rest sometimes.
        const Token byte = static_cast<Token>(0xc0 + random() % 0x38);
        const Token more = static_cast<Token>(0x80 + random() % 0x40);
        const Token offset = tokenizer.token_to_id("<0x00>").value_or(0);
        const uint32_t kind = random() % 4;
        id = kind == 0   ? static_cast<Token>(random() % (size + 3))
             : kind == 1 ? byte + offset
                         : more + offset;
      }
      for (bool skip : {true, false}) {
        StreamDecoder decoder(tokenizer, {.skip_special = skip});
        std::string all;
        for (Token id : ids) {
          const std::string piece = decoder.add(id);
          EXPECT_TRUE(is_valid_utf8(piece));
          all += piece;
        }
        all += decoder.finish();
        EXPECT_EQ(all, tokenizer.decode(ids, {.skip_special = skip}));
      }
    }
  }
}

// A decoder that reads whole sequences may change its mind about what is shown already: the stream
// cannot take that back, but it stays text.
TEST(StreamDecoder, WholeSequencesStayUtf8) {
  const Tokenizer tokenizer(test::whole_sequences_json(), "test");
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    StreamDecoder decoder(tokenizer);
    for (int i = 0; i < 8; ++i) {
      EXPECT_TRUE(is_valid_utf8(decoder.add(static_cast<Token>(3 + random() % 256))));
    }
    EXPECT_TRUE(is_valid_utf8(decoder.finish()));
  }
  StreamDecoder decoder(tokenizer);
  EXPECT_EQ(decoder.add(tokenizer.encode("The").front()), "The");
  EXPECT_EQ(decoder.add(3 + 0x7f), "\x7f");
  EXPECT_EQ(decoder.add(3 + 0xac), "");
  EXPECT_TRUE(is_valid_utf8(decoder.finish()));
}

TEST(StreamDecoder, HoldsWhatMayBecomeACharacter) {
  const Tokenizer tokenizer = ByteLevel().make();
  StreamDecoder decoder(tokenizer);
  EXPECT_EQ(decoder.add(0xf0), "");
  EXPECT_EQ(decoder.add(0x9f), "");
  EXPECT_EQ(decoder.add(0x91), "");
  EXPECT_EQ(decoder.add(0xa9), "\xf0\x9f\x91\xa9");
  EXPECT_EQ(decoder.add('a'), "a");
  EXPECT_EQ(decoder.add(0xe2), "");
  EXPECT_EQ(decoder.finish(), kReplacement);
}

// ---- cases TOK-05: long runs neither crash nor take quadratic time

// Of this process: the machine may be busy.
double seconds(const Tokenizer& tokenizer, const std::string& text) {
  const std::clock_t start = std::clock();
  const Ids ids = tokenizer.encode(text);
  const std::clock_t took = std::clock() - start;
  EXPECT_EQ(tokenizer.decode(ids), text);
  return static_cast<double>(took) / CLOCKS_PER_SEC;
}

TEST(Tokenizer, LongRunsTakeLinearTime) {
  const ByteLevel base;
  std::vector<std::vector<std::string>> styles{
      {std::string(test::kGpt2Split)},
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
      {R"(\p{N}{1,3})",
       "[一-龥぀-ゟ゠-ヿ]+",
       R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
      {R"(\d{1,3}(?=(?:\d{3})*\b))", std::string(test::kGpt2Split)},
      {}};
  std::vector<Tokenizer> tokenizers;
  for (const auto& splits : styles) {
    ByteLevel copy;
    copy.vocabulary.splits = splits;
    tokenizers.push_back(copy.make());
  }
  tokenizers.emplace_back(sentence_piece_json(), "test");
  for (const Tokenizer& tokenizer : tokenizers) {
    for (const std::string unit :
         {"A", "\n", " ", "1", "!", "漢", "\u0301", "l", "hello", "<s>", "'"}) {
      std::string text;
      while (text.size() < 200'000) {
        text += unit;
      }
      const double half = seconds(tokenizer, text);
      const double whole = seconds(tokenizer, text + text);
      EXPECT_LT(whole, 5) << unit;
      EXPECT_LT(whole, std::max(5 * half, 0.5)) << unit;
    }
  }
}

}  // namespace
}  // namespace quince
