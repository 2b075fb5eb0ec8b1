// Prompts that are computed once: in files of their own, and in the folder of --cache-dir.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <boost/json.hpp>

#include "cli/run_program.h"
#include "cli/tiny_folder.h"
#include "weights/files.h"

namespace quince::cli {
namespace {

namespace json = boost::json;
using test::ProgramResult;
using test::run_program;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kText = "Once there was a long text. ";

class CacheCommand : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new test::TempFolder();
    test::write_tiny_folder(*folder_ / "tiny");
    test::write_tiny_folder(*folder_ / "gemma", "gemma3");
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }
  static std::string model(const char* name = "tiny") {
    return (*folder_ / name).string();
  }
  static ProgramResult good(std::vector<std::string> arguments) {
    ProgramResult result = run_program(std::move(arguments));
    EXPECT_EQ(result.status, 0) << result.err;
    return result;
  }
  static json::object answer(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "run");
    for (const char* more : {"--json", "--temp", "0", "-n", "12", "--ignore-eos"}) {
      arguments.emplace_back(more);
    }
    return json::parse(good(std::move(arguments)).out).as_object();
  }
  static void refused(std::vector<std::string> arguments, const std::string& why) {
    const ProgramResult result = run_program(std::move(arguments));
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.err, HasSubstr(why));
  }
  static test::TempFolder* folder_;
};

test::TempFolder* CacheCommand::folder_ = nullptr;

TEST_F(CacheCommand, WhatIsAskedFollowsTheFile) {
  for (const char* name : {"tiny", "gemma"}) {
    const std::string file = (*folder_ / "c.safetensors").string();
    good({"cache", "build", model(name), "--prompt", kText, "-o", file});
    const json::object whole = answer({model(name), std::string(kText) + "Why?"});
    const json::object behind = answer({model(name), "Why?", "--prompt-cache-file", file});
    EXPECT_EQ(behind.at("token_ids"), whole.at("token_ids")) << name;
    EXPECT_EQ(behind.at("prompt_tokens"), whole.at("prompt_tokens"));
    EXPECT_GT(behind.at("cached_tokens").as_int64(), 25);
    // Without the template.
    good({"cache", "build", model(name), "--prompt", kText, "-o", file, "--raw"});
    EXPECT_EQ(
        answer({model(name), "Why?", "--raw", "--prompt-cache-file", file}).at("token_ids"),
        answer({model(name), std::string(kText) + "Why?", "--raw"}).at("token_ids"));
  }
}

TEST_F(CacheCommand, InspectShowsWhatIsInIt) {
  const std::string file = (*folder_ / "i.safetensors").string();
  good({"cache", "build", model("gemma"), "--prompt", kText, "-o", file});
  EXPECT_THAT(
      good({"cache", "inspect", file}).out,
      AllOf(HasSubstr("tokens"), HasSubstr("RotatingKVCache"), HasSubstr("model: ")));
  const json::object object =
      json::parse(good({"cache", "inspect", file, "--json"}).out).as_object();
  EXPECT_EQ(object.at("tokens").as_int64(), std::ssize(object.at("token_ids").as_array()));
  EXPECT_EQ(object.at("metadata").at("model").as_string(), model("gemma").c_str());
}

TEST_F(CacheCommand, MistakesAreNamed) {
  const std::string file = (*folder_ / "m.safetensors").string();
  good({"cache", "build", model(), "--prompt", kText, "-o", file});
  refused({"run", model("gemma"), "x", "--prompt-cache-file", file}, "of another model");
  refused({"run", model(), "x", "--prompt-cache-file", "none"}, "none: cannot open");
  refused(
      {"run", model(), "x", "--prompt-cache-file", model() + "/model.safetensors"},
      "not a prompt cache");
  refused(
      {"run", model(), "x", "--prompt-cache-file", file, "--system", "s"}, "quince cache build");
  refused({"cache", "build", model(), "-o", file}, "--prompt-file");
  refused({"cache", "build", model(), "--prompt", "x"}, "-o FILE");
  refused({"cache", "inspect"}, "no FILE");
  refused({"cache"}, "did you mean cache build?");
  refused({"run", model(), "x", "--cache-disk-gb", "3"}, "--cache-dir");
  refused({"bench", model(), "--cache-dir", "x"}, "bench serve");
}

TEST_F(CacheCommand, TheFolderServesTheNextStart) {
  const std::string folder = (*folder_ / "kept").string();
  const std::vector<std::string> question{model(), std::string(kText) + "Why?"};
  const json::object alone = answer(question);
  std::vector<std::string> with = question;
  with.insert(with.end(), {"--cache-dir", folder, "--cache-disk-gb", "0.01"});
  const json::object first = answer(with);
  const json::object second = answer(with);
  EXPECT_EQ(first.at("token_ids"), alone.at("token_ids"));
  EXPECT_EQ(second.at("token_ids"), alone.at("token_ids"));
  EXPECT_EQ(first.at("cached_tokens").as_int64(), 0);
  EXPECT_EQ(second.at("cached_tokens").as_int64(), second.at("prompt_tokens").as_int64() - 1);
}

}  // namespace
}  // namespace quince::cli
