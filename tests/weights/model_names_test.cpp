#include "weights/model_names.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "weights/files.h"
#include "weights/hub.h"

namespace quince {
namespace {

namespace fs = std::filesystem;
using test::ScopedEnvironment;
using test::user_error;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class Resolve : public ::testing::Test {
 protected:
  void alias_file(const std::string& text) {
    config_.write("quince/aliases", text);
  }
  void cached(const std::string& repo, const std::vector<std::string>& files) {
    const std::string folder = repo_folder("", repo).string();
    cache_.write(folder + "/refs/main", "c0ffee");
    for (const std::string& file : files) {
      cache_.write(folder + "/snapshots/c0ffee/" + file, "x");
    }
  }
  fs::path snapshot(const std::string& repo) {
    return repo_folder(cache_.path(), repo) / "snapshots" / "c0ffee";
  }
  test::TempFolder config_;
  test::TempFolder cache_;
  ScopedEnvironment config_home_{"XDG_CONFIG_HOME", config_.path().c_str()};
  ScopedEnvironment cache_home_{"HF_HUB_CACHE", cache_.path().c_str()};
};

TEST_F(Resolve, PathsAliasesAndRepositories) {
  test::TempFolder models;
  const auto file = models.write("m.gguf", "x");
  EXPECT_EQ(resolve_model(file.string()), file);
  alias_file(
      "# models of this house\n\n mine = " + file.string() +
      "  # the good one\nother=org/name\nfast = mine\n");
  EXPECT_EQ(resolve_model("mine"), file);
  EXPECT_EQ(resolve_model("fast"), file);
  cached("org/name", {"config.json", "model.safetensors"});
  EXPECT_EQ(resolve_model("org/name"), snapshot("org/name"));
  EXPECT_EQ(resolve_model("other"), snapshot("org/name"));
  cached("org/quants", {"m-Q4_K_M.gguf", "m-Q8_0.gguf"});
  EXPECT_EQ(resolve_model("org/quants:q8_0"), snapshot("org/quants") / "m-Q8_0.gguf");
  EXPECT_EQ(resolve_model("hf.co/org/quants:q8_0"), snapshot("org/quants") / "m-Q8_0.gguf");
  EXPECT_EQ(resolve_model("org/quants"), snapshot("org/quants") / "m-Q4_K_M.gguf");
}

TEST_F(Resolve, WhatIsNotThere) {
  EXPECT_THAT(user_error([] { resolve_model("org/absent"); }), HasSubstr("quince pull org/absent"));
  EXPECT_THAT(user_error([] { resolve_model("nonsense"); }), HasSubstr("neither an alias"));
  EXPECT_THAT(user_error([] { resolve_model(""); }), HasSubstr("empty"));
  EXPECT_THAT(user_error([] { resolve_model("/no/such/file.gguf"); }), HasSubstr("no such file"));
  alias_file("a = b\nb = a\n");
  EXPECT_THAT(user_error([] { resolve_model("a"); }), HasSubstr("leads back to itself"));
  alias_file("a = b\njust words\n");
  EXPECT_THAT(user_error([] { resolve_model("a"); }), HasSubstr("line 2"));
  alias_file("org/model = b\n");
  EXPECT_THAT(user_error([] { resolve_model("a"); }), HasSubstr("without a /"));
  cached("org/model", {"config.json", "model.safetensors"});
  EXPECT_EQ(resolve_model("org/model"), snapshot("org/model"));  // needs no alias
  alias_file("");
  // A reference to a snapshot that was removed, and a hostile one.
  cache_.write("models--org--gone/refs/main", "dead");
  EXPECT_THAT(user_error([] { resolve_model("org/gone"); }), HasSubstr("quince pull"));
  cache_.write("models--org--evil/refs/main", "../../..");
  EXPECT_THAT(user_error([] { resolve_model("org/evil"); }), HasSubstr("no commit id"));
}

// A name that is wrong in one letter is answered with the right one.
TEST_F(Resolve, SaysWhatMayHaveBeenMeant) {
  const auto complaint = [](const std::string& model) {
    return user_error([&] { resolve_model(model); });
  };
  test::TempFolder models;
  models.write("Small-1B.Q4_1.gguf", "x");
  models.write("Large/config.json", "{}");
  EXPECT_THAT(
      complaint(models / "Small-1B.Q4_2.gguf"),
      HasSubstr("did you mean " + (models / "Small-1B.Q4_1.gguf").string() + "?"));
  EXPECT_THAT(complaint(models / "large"), HasSubstr((models / "Large").string() + "?"));
  EXPECT_THAT(complaint(models / "completely-else.gguf"), Not(HasSubstr("did you mean")));
  EXPECT_THAT(complaint("/no/such/folder/m.gguf"), Not(HasSubstr("did you mean")));

  EXPECT_THAT(complaint("smolm2"), HasSubstr("did you mean smollm2?"));
  EXPECT_THAT(complaint("qwen3"), HasSubstr("did you mean qwen3-0.6b?"));
  alias_file("house-model = org/name\n");
  EXPECT_THAT(complaint("house"), HasSubstr("did you mean house-model?"));

  cached("org/name", {"config.json", "model.safetensors"});
  EXPECT_THAT(
      complaint("Org/nmae"),
      AllOf(HasSubstr("quince pull Org/nmae"), HasSubstr("did you mean org/name?")));
  cached("org/quants", {"m-Q4_K_M.gguf"});
  EXPECT_THAT(
      complaint("org/quants:Q8_0"),
      AllOf(HasSubstr("m-Q4_K_M.gguf"), HasSubstr("quince pull org/quants:Q8_0")));
}

TEST_F(Resolve, ListsTheCache) {
  EXPECT_TRUE(cached_models().empty());
  cached("org/name", {"config.json", "model.safetensors", "tokenizer.json"});
  cached("org/one", {"README.md", "one-00001-of-00002.gguf", "one-00002-of-00002.gguf"});
  cached("org/quants", {"m-Q4_0.gguf", "m-Q8_0.gguf", "sub/n-Q8_0.gguf", "mmproj-Q8_0.gguf"});
  cached("org/texts", {"README.md"});
  cache_.write("models--org--gone/refs/main", "dead");
  cache_.write("models--org--evil/refs/main", "../../..");
  cache_.write("datasets--org--data/refs/main", "c0ffee");
  std::vector<std::string> names;
  for (const CachedModel& model : cached_models()) {
    names.push_back(model.name);
    EXPECT_EQ(resolve_model(model.name), model.path);
    EXPECT_EQ(model.container, model.name == "org/name" ? "safetensors" : "gguf");
    EXPECT_EQ(model.bytes, model.name == "org/name" ? 3u : model.name == "org/one" ? 2u : 1u);
  }
  EXPECT_THAT(
      names,
      ElementsAre(
          "org/name",
          "org/one",
          "org/quants:Q4_0",
          "org/quants:m-Q8_0.gguf",
          "org/quants:sub/n-Q8_0.gguf"));
}

TEST_F(Resolve, BuiltInAliases) {
  EXPECT_TRUE(model_aliases().count("smollm2"));
  for (const auto& [name, target] : model_aliases()) {
    EXPECT_TRUE(parse_repo_name(target)) << name;
  }
  alias_file("smollm2 = org/mine\n");
  EXPECT_EQ(model_aliases().at("smollm2"), "org/mine");
}

}  // namespace
}  // namespace quince
