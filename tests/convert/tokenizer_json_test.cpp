// A tokenizer.json written from a GGUF vocabulary must give the same ids as the vocabulary itself.
#include "convert/tokenizer_json.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tokenizer/tokenizer.h"
#include "weights/files.h"
#include "weights/gguf_tokenizer.h"

namespace quince {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTexts[] = {
    "",
    " ",
    "Hello, world!",
    "  two  spaces   and\ttabs\n\nnew\r\nlines\n\n\n",
    "def f(x):\n    return x ** 2  # naïve\n",
    "Grüße, Ærøskøbing; Ελληνικά, русский, עברית, العربية, हिन्दी, 中文字符, 日本語, 한국어",
    "👩 👩‍👩‍👧 🇩🇪 é e\u0301 \u200b\u00a0x",
    "1234567890 3.14159 1,000,000 0xFF don't I'll we've",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "<|im_start|>user\n<s>[INST] <bos><unk> </s><0x0A>",
    "\x01\x02\x7f control",
};

void expect_same(const Vocabulary& vocabulary, const std::string& name, const std::string& more) {
  Tokenizer own(vocabulary, name);
  Tokenizer written(tokenizer_json(vocabulary, name), name);
  EXPECT_EQ(own.vocab_size(), written.vocab_size()) << name;
  auto compare = [&](const std::string& text) {
    for (bool special : {false, true}) {
      EncodeOptions options{special, special};
      std::vector<Token> ids = own.encode(text, options);
      EXPECT_EQ(ids, written.encode(text, options)) << name << ": " << text.substr(0, 200);
      EXPECT_EQ(own.decode(ids), written.decode(ids)) << name << ": " << text.substr(0, 200);
    }
  };
  for (const char* text : kTexts) {
    compare(text);
  }
  if (!more.empty()) {
    compare(more);
  }
}

TEST(TokenizerJson, RealVocabularies) {
  const char* folder = std::getenv("QUINCE_TEST_MODELS");
  if (folder == nullptr) {
    GTEST_SKIP() << "QUINCE_TEST_MODELS is not set";
  }
  std::vector<fs::path> paths{
      fs::path(folder) / "SmolLM2-135M-Instruct.Q4_1.gguf",
      fs::path(folder) / "gemma-3-270m-q4_k_m.gguf"};
  for (const auto& entry : fs::directory_iterator(fs::path(folder) / "llama.cpp-models")) {
    if (entry.path().extension() == ".gguf") {
      paths.push_back(entry.path());
    }
  }
  int compared = 0;
  for (const fs::path& path : paths) {
    std::vector<std::string> notes;
    GgufFile file = GgufFile::open(path);
    auto vocabulary = gguf_vocabulary(file, notes);
    std::string name = path.filename().string();
    if (vocabulary->kind != VocabularyKind::merges && vocabulary->kind != VocabularyKind::scores) {
      EXPECT_THAT(
          test::user_error([&] { tokenizer_json(*vocabulary, name); }), testing::HasSubstr(name));
      continue;
    }
    expect_same(*vocabulary, name, test::read_file(path.string() + ".inp"));
    compared++;
  }
  EXPECT_GE(compared, 10);
}

// Small ones of both kinds, which need no files.

TEST(TokenizerJson, Scores) {
  Vocabulary vocabulary;
  vocabulary.kind = VocabularyKind::scores;
  vocabulary.tokens = {
      "<unk>",
      "<s>",
      "</s>",
      "<0x41>",
      "\xe2\x96\x81",
      "a",
      "b",
      "ab",
      "\xe2\x96\x81"
      "ab",
      "c"};
  vocabulary.scores = {0, 0, 0, 0, -1, -2, -3, -4, -0.5f, -6};
  vocabulary.types = {
      TokenType::unknown,
      TokenType::control,
      TokenType::control,
      TokenType::byte,
      TokenType::normal,
      TokenType::normal,
      TokenType::normal,
      TokenType::normal,
      TokenType::normal,
      TokenType::normal};
  vocabulary.unknown = 0;
  vocabulary.escape_spaces = true;
  vocabulary.space_prefix = true;
  vocabulary.prefix = {1};
  Tokenizer written(tokenizer_json(vocabulary, "small"), "small");
  EXPECT_EQ(written.encode("ab"), (std::vector<Token>{8}));
  EXPECT_EQ(
      written.encode("ab c", {.add_special = true, .parse_special = false}),
      (std::vector<Token>{1, 8, 4, 9}));
  EXPECT_EQ(written.encode("A"), (std::vector<Token>{4, 3}));
  EXPECT_EQ(written.decode(std::vector<Token>{1, 8, 4, 9}), "ab c");
  expect_same(vocabulary, "small", "abcabc ab  c");
}

TEST(TokenizerJson, KindsThatDoNotFitAreRefused) {
  Vocabulary vocabulary;
  vocabulary.kind = VocabularyKind::unigram;
  vocabulary.tokens = {"a"};
  vocabulary.scores = {0};
  vocabulary.description = "Unigram";
  EXPECT_THAT(
      test::user_error([&] { tokenizer_json(vocabulary, "m.gguf"); }),
      testing::HasSubstr("m.gguf: its vocabulary (Unigram)"));
}

}  // namespace
}  // namespace quince
