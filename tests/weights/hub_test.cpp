#include "weights/hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "weights/files.h"

namespace quince {
namespace {

namespace fs = std::filesystem;
using test::ScopedEnvironment;
using test::user_error;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Hub, CacheFolderFollowsTheEnvironment) {
  ScopedEnvironment home("HOME", "/home/x");
  ScopedEnvironment xdg("XDG_CACHE_HOME", nullptr);
  ScopedEnvironment hf_home("HF_HOME", nullptr);
  ScopedEnvironment old("HUGGINGFACE_HUB_CACHE", nullptr);
  ScopedEnvironment cache("HF_HUB_CACHE", nullptr);
  EXPECT_EQ(hub_cache_folder(), "/home/x/.cache/huggingface/hub");
  ScopedEnvironment xdg2("XDG_CACHE_HOME", "/xdg");
  EXPECT_EQ(hub_cache_folder(), "/xdg/huggingface/hub");
  ScopedEnvironment hf_home2("HF_HOME", "/hf");
  EXPECT_EQ(hub_cache_folder(), "/hf/hub");
  ScopedEnvironment cache2("HF_HUB_CACHE", "/cache");
  EXPECT_EQ(hub_cache_folder(), "/cache");
  ScopedEnvironment empty("HF_HUB_CACHE", "");
  EXPECT_EQ(hub_cache_folder(), "/hf/hub");
}

TEST(Hub, RepositoryNames) {
  EXPECT_EQ(parse_repo_name("org/name")->id, "org/name");
  EXPECT_EQ(parse_repo_name("org/name")->quant, "");
  EXPECT_EQ(parse_repo_name("Org_1/na-me.2:Q4_K_M")->quant, "Q4_K_M");
  for (const char* bad :
       {"name",
        "/name",
        "org/",
        "a/b/c",
        "../x",
        "x/..",
        "a b/c",
        "-a/b",
        ".a/b",
        "a/b.",
        "a/b:",
        "a\\b/c",
        "a/b\n",
        "org/na..me"}) {
    EXPECT_FALSE(parse_repo_name(bad)) << bad;
  }
  EXPECT_EQ(repo_folder("/c", "org/name"), "/c/models--org--name");
}

TEST(Hub, ChoosesByQuant) {
  const std::vector<std::string> names{
      "README.md",
      "m.IQ4_XS.gguf",
      "m.Q4_0.gguf",
      "m.Q4_0_4_4.gguf",
      "m.Q4_K.gguf",
      "m.Q4_K_M.gguf",
      "mmproj-Q8_0.gguf",
      "sub/m-Q8_0-00001-of-00002.gguf",
      "sub/m-Q8_0-00002-of-00002.gguf"};
  EXPECT_EQ(choose_gguf(names, "q4_0", "r"), "m.Q4_0.gguf");
  EXPECT_EQ(choose_gguf(names, "Q4_K", "r"), "m.Q4_K.gguf");
  EXPECT_EQ(choose_gguf(names, "q4_k_m", "r"), "m.Q4_K_M.gguf");
  EXPECT_EQ(choose_gguf(names, "Q8_0", "r"), "sub/m-Q8_0-00001-of-00002.gguf");
  EXPECT_EQ(choose_gguf(names, "m.IQ4_XS.gguf", "r"), "m.IQ4_XS.gguf");
  EXPECT_THAT(user_error([&] { choose_gguf(names, "Q2_K", "org/r"); }), HasSubstr("m.Q4_K_M.gguf"));
  EXPECT_THAT(user_error([&] { choose_gguf(names, "", "org/r"); }), HasSubstr("org/r:QUANT"));
  EXPECT_THAT(user_error([&] { choose_gguf({"a.txt"}, "", "org/r"); }), HasSubstr("no GGUF model"));
  EXPECT_EQ(choose_gguf({"only.gguf"}, "", "r"), "only.gguf");
}

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
  EXPECT_THAT(user_error([] { resolve_model("org/quants"); }), HasSubstr("2 GGUF files"));
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
  alias_file("");
  // A reference to a snapshot that was removed, and a hostile one.
  cache_.write("models--org--gone/refs/main", "dead");
  EXPECT_THAT(user_error([] { resolve_model("org/gone"); }), HasSubstr("quince pull"));
  cache_.write("models--org--evil/refs/main", "../../..");
  EXPECT_THAT(user_error([] { resolve_model("org/evil"); }), HasSubstr("no commit id"));
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
