// quince run with the form of the answer given.
#include <fstream>

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "cli/run_program.h"
#include "cli/tiny_folder.h"
#include "weights/files.h"

namespace quince {
namespace {

using test::ProgramResult;
using test::run_program;
using testing::HasSubstr;

class AnswerForm : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new test::TempFolder;
    test::write_tiny_folder(*folder_ / "tiny");
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }
  static ProgramResult answer(const std::vector<std::string>& flags) {
    std::vector<std::string> all{"run", *folder_ / "tiny", "x", "-q"};
    all.insert(all.end(), flags.begin(), flags.end());
    return run_program(all);
  }
  static std::string text(const std::vector<std::string>& flags) {
    const ProgramResult result = answer(flags);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out;
  }
  static std::string write(const std::string& name, const std::string& content) {
    std::ofstream(*folder_ / name) << content;
    return *folder_ / name;
  }
  static test::TempFolder* folder_;
};
test::TempFolder* AnswerForm::folder_ = nullptr;

TEST_F(AnswerForm, IsKept) {
  for (const char* seed : {"1", "2", "3"}) {
    const std::string choice = text({"--choice", "apple,quince jam", "--seed", seed});
    EXPECT_TRUE(choice == "apple\n" || choice == "quince jam\n") << choice;
    EXPECT_THAT(
        text({"--regex", "[0-9]{2}:[0-5]", "--seed", seed}),
        testing::MatchesRegex("[0-9][0-9]:[0-5]\n"));
    const std::string schema =
        R"({"type":"array","items":{"enum":[1,null]},"minItems":2,"maxItems":2})";
    const std::string list = text({"--json-schema", schema, "--seed", seed});
    const auto value = boost::json::parse(list);
    EXPECT_EQ(value.as_array().size(), 2u) << list;
    const std::string file = write("schema.json", schema);
    EXPECT_EQ(text({"-j", file, "--seed", seed}), list);
    const std::string gbnf = "root ::= \"<\" [ab]{3} \">\"";
    const std::string tag = text({"--grammar", gbnf, "--seed", seed});
    EXPECT_THAT(tag, testing::MatchesRegex("<[ab][ab][ab]>\n"));
    EXPECT_THAT(
        text({"--grammar", "start: /[ab]{2}/", "--seed", seed}),
        testing::MatchesRegex("[ab][ab]\n"));
    EXPECT_EQ(text({"--grammar-file", write("tag.gbnf", gbnf + "\n"), "--seed", seed}), tag);
    const std::string lark = "start: \"<\" /[ab]{3}/ \">\"\n";
    EXPECT_THAT(
        text({"--grammar", lark, "--seed", seed}), testing::MatchesRegex("<[ab][ab][ab]>\n"));
  }
  const auto json = boost::json::parse(text({"--choice", "a", "--json"}));
  EXPECT_EQ(json.at("text").as_string(), "a");
  EXPECT_EQ(json.at("finish_reason").as_string(), "stop");
}

TEST_F(AnswerForm, MistakesAreToldWithTheReason) {
  const auto refused = [](const std::vector<std::string>& flags, const std::string& why) {
    const ProgramResult result = answer(flags);
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr(why));
  };
  refused(
      {"--json-schema", R"({"properties":{"a":{"not":{}}}})"},
      "JSON schema: /properties/a: unsupported keyword \"not\"");
  refused({"--json-schema", *folder_ / "none.json"}, "none.json");
  refused({"--json-schema", "[]"}, "a schema is an object or a boolean");
  refused({"--regex", "(a"}, "regular expression: unclosed group");
  refused({"--choice", "a,,b"}, "--choice 'a,,b': want texts with commas");
  refused({"--choice", ""}, "--choice '': want texts");
  refused({"--grammar", "root ::= rest"}, "GBNF grammar: rule \"rest\" is used and not defined");
  refused({"--regex", "a", "--choice", "b"}, "--choice: the form of the answer is already given");
}

}  // namespace
}  // namespace quince
