// GGUF vocabularies against the ids that llama.cpp's package lists for them, and against goldens
// made by outside tokenizers (golden/tokens.py).
#include "weights/gguf_tokenizer.h"

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <boost/json.hpp>

#include "base/error.h"
#include "tokenizer/tokenizer.h"
#include "weights/mixed_text.h"

namespace quince {
namespace {

namespace fs = std::filesystem;

std::optional<fs::path> models_folder() {
  const char* value = std::getenv("QUINCE_TEST_MODELS");
  return value ? std::optional<fs::path>(value) : std::nullopt;
}

std::string read_all(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

Tokenizer load(const fs::path& path, std::vector<std::string>* notes = nullptr) {
  std::vector<std::string> mine;
  const GgufFile file = GgufFile::open(path);
  return Tokenizer(*gguf_vocabulary(file, notes ? *notes : mine), path.string());
}

std::vector<std::string> split_cases(const std::string& text) {
  const std::string mark = "\n__ggml_vocab_test__\n";
  std::vector<std::string> cases;
  size_t from = 0;
  for (size_t at; (at = text.find(mark, from)) != std::string::npos; from = at + mark.size()) {
    cases.push_back(text.substr(from, at - from));
  }
  return cases;
}

TEST(GgufTokenizer, ListedVocabulariesGiveTheListedIds) {
  const auto folder = models_folder();
  if (!folder) {
    GTEST_SKIP() << "QUINCE_TEST_MODELS is not set";
  }
  int files = 0;
  for (const auto& entry : fs::directory_iterator(*folder / "llama.cpp-models")) {
    const fs::path path = entry.path();
    const fs::path inputs = path.string() + ".inp";
    if (path.extension() != ".gguf" || !fs::exists(inputs)) {
      continue;
    }
    ++files;
    SCOPED_TRACE(path.filename());
    const Tokenizer tokenizer = load(path);
    const std::vector<std::string> cases = split_cases(read_all(inputs));
    std::ifstream outputs(path.string() + ".out");
    ASSERT_GT(cases.size(), 40u);
    for (const std::string& text : cases) {
      std::string line;
      ASSERT_TRUE(std::getline(outputs, line));
      std::istringstream numbers(line);
      const std::vector<Token> want{
          std::istream_iterator<Token>(numbers), std::istream_iterator<Token>()};
      EXPECT_EQ(tokenizer.encode(text), want) << "text: " << text;
    }
  }
  EXPECT_GE(files, 15);
}

std::string fingerprint(const std::vector<Token>& ids) {
  uint64_t value = 0xcbf29ce484222325;
  for (Token id : ids) {
    for (int shift = 0; shift < 32; shift += 8) {
      value = (value ^ (static_cast<uint32_t>(id) >> shift & 0xff)) * 0x100000001b3;
    }
  }
  return fmt::format("{:016x}", value);
}

TEST(GgufTokenizer, MixedTextGivesTheReferencesIds) {
  const auto folder = models_folder();
  if (!folder) {
    GTEST_SKIP() << "QUINCE_TEST_MODELS is not set";
  }
  const auto golden = boost::json::parse(
      read_all(fs::path(QUINCE_TEST_DATA) / "weights" / "golden" / "tokens.json"));
  const std::string text = test::mixed_text(1'200'000);
  for (const auto& [name, references] : golden.at("tokens").as_object()) {
    const Tokenizer tokenizer = load(*folder / std::string(name));
    const std::vector<Token> ids = tokenizer.encode(text);
    for (const auto& [reference, want] : references.as_object()) {
      EXPECT_EQ(static_cast<int64_t>(ids.size()), want.at("count").as_int64())
          << name << " by " << reference;
      EXPECT_EQ(fingerprint(ids), std::string(want.at("hash").as_string()))
          << name << " by " << reference;
    }
    // Byte-level tokens give the text back, but where characters are composed, and without control
    // characters that the vocabulary has no token for (SmolLM2 and Falcon; the references drop them
    // too). (A bool: a
    // difference of a megabyte of text cannot be shown.)
    std::vector<std::string> notes;
    const auto vocabulary = gguf_vocabulary(GgufFile::open(*folder / std::string(name)), notes);
    if (vocabulary->byte_level && !vocabulary->nfc) {
      std::string expected = text;
      std::erase_if(expected, [&](char c) {
        return c > 0 && c < ' ' && tokenizer.encode(std::string(1, c)).empty();
      });
      EXPECT_TRUE(tokenizer.decode(ids) == expected) << name;
    }
  }
}

TEST(GgufTokenizer, DecodesWhatItEncodes) {
  const auto folder = models_folder();
  if (!folder) {
    GTEST_SKIP() << "QUINCE_TEST_MODELS is not set";
  }
  const std::string text =
      "Hello, wörld! 漢字かな交じり文 한국어 \u0e44\u0e17\u0e22 עברית हिन्दी "
      "👩‍👩‍👧 "
      "🇺🇳 "
      "<|im_end|> <s>\n\n\t"
      "  int main() { return 0x7f; }\r\n1234567890 ½ ﬁ \x01\x7f e\u0301";
  for (const char* name :
       {"SmolLM2-135M-Instruct.Q4_1.gguf",
        "gemma-3-270m-q4_k_m.gguf",
        "llama.cpp-models/ggml-vocab-llama-spm.gguf",
        "llama.cpp-models/ggml-vocab-llama-bpe.gguf",
        "llama.cpp-models/ggml-vocab-gemma-4.gguf",
        "llama.cpp-models/ggml-vocab-deepseek-llm.gguf"}) {
    SCOPED_TRACE(name);
    const Tokenizer tokenizer = load(*folder / name);
    const std::vector<Token> ids = tokenizer.encode(text);
    EXPECT_EQ(tokenizer.decode(ids), text);
    // What a user types is text, whatever it looks like.
    for (Token id : ids) {
      EXPECT_FALSE(tokenizer.is_special(id)) << tokenizer.id_to_token(id).value_or("?");
    }
    for (const std::string& special : tokenizer.special_tokens()) {
      for (Token id : tokenizer.encode("x" + special + "y")) {
        EXPECT_FALSE(tokenizer.is_special(id)) << special;
      }
    }
  }
}

// TOK-05: long runs of one kind of character in every vocabulary: no recursion, no quadratic time.
TEST(GgufTokenizer, LongRunsInEveryVocabulary) {
  const auto folder = models_folder();
  if (!folder) {
    GTEST_SKIP() << "QUINCE_TEST_MODELS is not set";
  }
  std::vector<fs::path> paths{
      *folder / "SmolLM2-135M-Instruct.Q4_1.gguf", *folder / "gemma-3-270m-q4_k_m.gguf"};
  for (const auto& entry : fs::directory_iterator(*folder / "llama.cpp-models")) {
    if (fs::exists(entry.path().string() + ".inp")) {
      paths.push_back(entry.path());
    }
  }
  EXPECT_GE(paths.size(), 17u);
  for (const fs::path& path : paths) {
    const Tokenizer tokenizer = load(path);
    for (const std::string unit : {"A", "\n", " ", "1", "!", "漢", "\u0301", "z\n", "'s"}) {
      const auto seconds = [&](size_t count) {
        std::string text;
        for (size_t i = 0; i < count; ++i) {
          text += unit;
        }
        const std::clock_t start = std::clock();  // of this process: the machine may be busy
        tokenizer.encode(text);
        return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
      };
      const double half = seconds(100'000);
      const double whole = seconds(200'000);
      EXPECT_LT(whole, 5) << path.filename() << " " << unit;
      EXPECT_LT(whole, std::max(4 * half, 0.5)) << path.filename() << " " << unit;
    }
  }
}

TEST(GgufTokenizer, LoadsFast) {
  const auto folder = models_folder();
  if (!folder) {
    GTEST_SKIP() << "QUINCE_TEST_MODELS is not set";
  }
  const auto seconds = [&](const char* name) {
    double best = 1e9;
    for (int i = 0; i < 3; ++i) {
      const auto start = std::chrono::steady_clock::now();
      load(*folder / name);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      best = std::min(best, took.count());
    }
    RecordProperty(name, std::to_string(best));
    std::printf("%s: %.0f ms\n", name, best * 1000);
    return best;
  };
#ifdef NDEBUG
  EXPECT_LT(seconds("SmolLM2-135M-Instruct.Q4_1.gguf"), 0.1 * 3);  // a shared machine may be slow
  EXPECT_LT(seconds("gemma-3-270m-q4_k_m.gguf"), 0.35 * 3);
#else
  seconds("SmolLM2-135M-Instruct.Q4_1.gguf");
#endif
}

}  // namespace
}  // namespace quince
