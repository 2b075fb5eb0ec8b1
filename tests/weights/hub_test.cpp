#include "weights/hub.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "weights/files.h"
#include "weights/model_files.h"

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

TEST(Hub, RepositoryNamesAsOthersWriteThem) {
  for (const std::string prefix :
       {"hf.co/", "hf://", "huggingface.co/", "https://huggingface.co/", "https://hf.co/"}) {
    const auto name = parse_repo_name(prefix + "org/name:Q8_0");
    ASSERT_TRUE(name) << prefix;
    EXPECT_EQ(name->id, "org/name") << prefix;
    EXPECT_EQ(name->quant, "Q8_0") << prefix;
  }
  for (const char* bad : {"https://example.com/org/name", "https://org/name", "hf.co/name"}) {
    EXPECT_FALSE(parse_repo_name(bad)) << bad;
  }
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
  EXPECT_EQ(choose_gguf(names, "", "org/r"), "m.Q4_K_M.gguf");
  const std::vector<std::string> others{"m.Q4_0.gguf", "m.Q8_0.gguf"};
  EXPECT_THAT(user_error([&] { choose_gguf(others, "", "org/r"); }), HasSubstr("org/r:QUANT"));
  EXPECT_THAT(user_error([&] { choose_gguf(others, "", "org/r"); }), HasSubstr("m.Q8_0.gguf"));
  EXPECT_THAT(user_error([&] { choose_gguf({"a.txt"}, "", "org/r"); }), HasSubstr("no GGUF model"));
  EXPECT_EQ(choose_gguf({"only.gguf"}, "", "r"), "only.gguf");
}

TEST(ListFiles, GoesTwoFoldersDown) {
  test::TempFolder folder;
  for (const char* name : {"a", "b/a", "b/b/a", "b/b/b/a", "b/b/b/b/a"}) {
    folder.write(name, "x");
  }
  fs::create_directory_symlink("..", folder.path() / "b" / "up");
  EXPECT_THAT(list_files(folder.path()), ElementsAre("a", "b/a", "b/b/a"));
}

TEST(ModelFolder, OfSeveralGgufFilesAsksForOne) {
  test::TempFolder folder;
  folder.write("a.gguf", "x");
  folder.write("b.gguf", "x");
  EXPECT_THAT(
      user_error([&] { open_model(folder.path().string()); }),
      HasSubstr("2 GGUF files fit: a.gguf, b.gguf; give the path of one of them"));
}

}  // namespace
}  // namespace quince
