#include "cli/conversation.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include "weights/files.h"

namespace quince::cli {
namespace {

using test::TempFolder;
using test::user_error;
using testing::HasSubstr;

TEST(Conversation, Json) {
  Conversation conversation{"s", {{"user", "a"}, {"assistant", "b"}}};
  EXPECT_EQ(
      boost::json::serialize(conversation.to_json()),
      R"([{"role":"system","content":"s"},{"role":"user","content":"a"},{"role":"assistant","content":"b"}])");
  EXPECT_TRUE(Conversation{}.to_json().empty());
}

TEST(Conversation, SavedFilesArePrivateAndReplaceable) {
  TempFolder folder;
  auto path = folder / "a.json";
  save_conversation({{}, {{"user", "one"}}}, "m", path);
  save_conversation({{}, {{"user", "two"}}}, "m", path);
  EXPECT_EQ(load_conversation(path).messages.front().content, "two");
  struct stat status{};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1)
      << "no temporary file stays behind";
}

TEST(Conversation, OtherFilesAreNotOverwritten) {
  TempFolder folder;
  for (const char* text : {"my thesis", "{\"a\": 1}", "[1, 2]"}) {
    auto path = folder.write("x", text);
    EXPECT_THAT(
        user_error([&] { save_conversation({}, "m", path); }), HasSubstr("not a saved chat"));
    EXPECT_EQ(test::read_file(path), text);
  }
}

TEST(Conversation, CannotWrite) {
  EXPECT_THAT(
      user_error([] { save_conversation({}, "m", "/nonexistent-folder/a.json"); }),
      HasSubstr("/nonexistent-folder/a.json"));
}

TEST(Conversation, LoadsListsAndParts) {
  TempFolder folder;
  auto path = folder.write(
      "a.json",
      R"([{"role":"developer","content":"s"},
          {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
          {"role":"assistant","content":null}])");
  Conversation conversation = load_conversation(path);
  EXPECT_EQ(conversation.system, "s");
  ASSERT_EQ(conversation.messages.size(), 2u);
  EXPECT_EQ(conversation.messages[0].content, "ab");
  EXPECT_EQ(conversation.messages[1].content, "");
}

TEST(Conversation, BadFilesAreNamed) {
  TempFolder folder;
  for (const char* text :
       {"",
        "{",
        "5",
        "{}",
        "{\"messages\": 5}",
        "[5]",
        "[{\"role\":\"user\"}]",
        R"([{"role":"wizard","content":"x"}])",
        R"([{"role":"user","content":5}])",
        R"([{"role":"user","content":[{"type":"image"}]}])",
        R"([{"role":"user","content":"a"},{"role":"system","content":"b"}])"}) {
    auto path = folder.write("bad.json", text);
    EXPECT_THAT(user_error([&] { load_conversation(path); }), HasSubstr("bad.json")) << text;
  }
}

TEST(ExpandHome, OnlyTheTilde) {
  test::ScopedEnvironment home("HOME", "/home/me");
  EXPECT_EQ(expand_home("~/a"), "/home/me/a");
  EXPECT_EQ(expand_home("~"), "/home/me");
  EXPECT_EQ(expand_home("a~/b"), "a~/b");
  EXPECT_EQ(expand_home("~you/b"), "~you/b");
}

}  // namespace
}  // namespace quince::cli
