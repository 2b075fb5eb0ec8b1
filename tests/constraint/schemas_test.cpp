// The schemas of schemas.json: what fits and what does not is told apart, random walks over the
// masks end in values that fit, and what cannot be held to is refused with the reason.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "cli/tiny_tokenizer.h"
#include "constraint/constraint.h"
#include "constraint/json_validator.h"
#include "constraint/walk.h"
#include "tokenizer/small_tokenizers.h"
#include "weights/gguf_tokenizer.h"

namespace quince {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

json::array read_cases() {
  std::ifstream in(std::string(QUINCE_TEST_DATA) + "/constraint/schemas.json");
  std::stringstream text;
  text << in.rdbuf();
  return json::parse(text.str()).as_array();
}

ConstraintSpec schema_of(const json::value& test) {
  return {ConstraintKind::json_schema, json::serialize(test.at("schema"))};
}

TEST(Schemas, TellWhatFitsFromWhatDoesNot) {
  const Tokenizer tokenizer = test::tiny_tokenizer();
  ConstraintCompiler compiler(tokenizer, 258);
  int schemas = 0;
  for (const json::value& test : read_cases()) {
    if (test.as_object().contains("refused")) {
      continue;
    }
    SCOPED_TRACE(json::serialize(test));
    ++schemas;
    const auto constraint = compiler.compile(schema_of(test));
    const test::JsonValidator validator(test.at("schema"));
    for (const json::value& text : test.at("fits").as_array()) {
      EXPECT_TRUE(test::takes(*constraint, text.as_string())) << text;
      EXPECT_TRUE(validator.fits(json::parse(text.as_string()))) << text;
    }
    for (const json::value& text : test.at("not").as_array()) {
      EXPECT_FALSE(test::takes(*constraint, text.as_string())) << text;
    }
  }
  EXPECT_GE(schemas, 150);
}

TEST(Schemas, AreRefusedWithTheReason) {
  const Tokenizer tokenizer = test::tiny_tokenizer();
  ConstraintCompiler compiler(tokenizer, 258);
  int refused = 0;
  for (const json::value& test : read_cases()) {
    if (const json::value* reason = test.as_object().if_contains("refused")) {
      ++refused;
      try {
        compiler.compile(schema_of(test));
        ADD_FAILURE() << "taken: " << test;
      } catch (const UserError& e) {
        const std::string message = e.what();
        EXPECT_EQ(message.find("JSON schema: "), 0u) << message;
        EXPECT_NE(message.find(std::string(reason->as_string())), std::string::npos)
            << test << ": " << message;
        EXPECT_EQ(message.find("panic"), std::string::npos) << message;
      }
    }
  }
  EXPECT_GE(refused, 40);
}

// With QUINCE_WALKS, the texts are written there, for check_walks.py.
void walk_all(const Tokenizer& tokenizer, const std::string& name, int walks) {
  const int vocab = tokenizer.vocab_size();
  ConstraintCompiler compiler(tokenizer, vocab);
  test::Walker walker(tokenizer, vocab, 7);
  std::ofstream out;
  if (const char* path = std::getenv("QUINCE_WALKS")) {
    out.open(path, std::ios::app);
  }
  for (const json::value& test : read_cases()) {
    if (test.as_object().contains("refused")) {
      continue;
    }
    SCOPED_TRACE(json::serialize(test));
    const auto constraint = compiler.compile(schema_of(test));
    const test::JsonValidator validator(test.at("schema"));
    for (int i = 0; i < walks; ++i) {
      std::string text;
      ASSERT_NO_THROW(text = walker.decode(walker.walk(constraint->begin(), 5 << (i % 5)))) << name;
      boost::system::error_code error;
      const json::value value = json::parse(text, error);
      if (error == json::error::exponent_overflow) {
        continue;  // "6e64919874354" is a number in JSON
      }
      ASSERT_FALSE(error) << name << ": " << text;
      EXPECT_TRUE(validator.fits(value)) << name << ": " << text;
      if (out) {
        const json::object line{{"vocabulary", name}, {"name", test.at("name")}, {"text", text}};
        out << json::serialize(line) << "\n";
      }
    }
  }
}

TEST(Schemas, WalksOverBytesFit) {
  walk_all(test::tiny_tokenizer(), "bytes", 10);
}

TEST(Schemas, WalksOverMergesFit) {
  walk_all(test::ByteLevel().make(), "merges", 10);
}

TEST(Schemas, WalksOverAVocabularyWithSpaceMarksFit) {
  walk_all(Tokenizer(test::sentence_piece_json(), "space marks"), "space marks", 10);
}

TEST(Schemas, WalksOverRealVocabulariesFit) {
  const char* folder = std::getenv("QUINCE_TEST_MODELS");
  if (folder == nullptr) {
    GTEST_SKIP() << "QUINCE_TEST_MODELS is not set";
  }
  for (const char* file : {"SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf"}) {
    std::vector<std::string> notes;
    const GgufFile model = GgufFile::open(fs::path(folder) / file);
    const auto begin = std::chrono::steady_clock::now();
    walk_all(Tokenizer(*gguf_vocabulary(model, notes), file), file, 3);
    fmt::print(
        "{}: {:.1f} s\n",
        file,
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
}

}  // namespace
}  // namespace quince
