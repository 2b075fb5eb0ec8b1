#include "base/mapped_file.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"

namespace quince {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class MappedFileTest : public ::testing::Test {
 protected:
  MappedFileTest() {
    std::string name = (fs::temp_directory_path() / "quince-test-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~MappedFileTest() override {
    fs::remove_all(folder_);
  }
  fs::path write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  static std::string text_of(const MappedFile& file) {
    return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
  }
  static std::string error(const fs::path& path) {
    try {
      MappedFile::open(path);
    } catch (const UserError& error) {
      return error.what();
    }
    ADD_FAILURE() << "no error";
    return "";
  }
  fs::path folder_;
};

TEST_F(MappedFileTest, Contents) {
  const auto file = MappedFile::open(write("a", "some bytes"));
  EXPECT_EQ(text_of(*file), "some bytes");
  EXPECT_EQ(file->path(), folder_ / "a");
  EXPECT_TRUE(MappedFile::open(write("empty", ""))->bytes().empty());
  fs::create_symlink(folder_ / "a", folder_ / "link");
  EXPECT_EQ(text_of(*MappedFile::open(folder_ / "link")), "some bytes");
}

TEST_F(MappedFileTest, OutlivesTheDirectoryEntry) {
  const auto file = MappedFile::open(write("a", "still here"));
  fs::remove(folder_ / "a");
  EXPECT_EQ(text_of(*file), "still here");
}

TEST_F(MappedFileTest, ACopyIsTheProgramsOwn) {
  const std::string text = "some bytes of a file";
  const auto file = MappedFile::read(write("a", text));
  EXPECT_EQ(file->path(), folder_ / "a");
  write("a", "other");
  file->drop(file->bytes());
  file->will_need(file->bytes());
  EXPECT_EQ(text_of(*file), text);
  EXPECT_TRUE(MappedFile::read(write("empty", ""))->bytes().empty());
  EXPECT_THROW(MappedFile::read(folder_ / "absent"), UserError);
  EXPECT_THROW(MappedFile::read(folder_), UserError);
}

TEST_F(MappedFileTest, HintsChangeNothing) {
  std::string text(1'000'000, 'x');
  for (size_t i = 0; i < text.size(); ++i) {
    text[i] = static_cast<char>(i * 7);
  }
  const auto file = MappedFile::open(write("a", text));
  file->will_need(file->bytes());
  EXPECT_EQ(text_of(*file), text);
  file->drop(file->bytes().subspan(5000, 500'000));
  file->drop(file->bytes().subspan(10, 20));  // inside one page
  file->drop({});
  file->will_need(file->bytes().subspan(999'999));
  EXPECT_EQ(text_of(*file), text);
}

TEST_F(MappedFileTest, WhatIsNoFile) {
  EXPECT_THAT(error(folder_ / "absent"), HasSubstr("absent: cannot open: No such file"));
  EXPECT_THAT(error(folder_), HasSubstr("not a regular file"));
  ASSERT_EQ(::mkfifo((folder_ / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(error(folder_ / "fifo"), HasSubstr("not a regular file"));  // and does not wait
  EXPECT_THAT(error("/dev/null"), HasSubstr("not a regular file"));
  if (::geteuid() != 0) {
    write("secret", "x");
    fs::permissions(folder_ / "secret", fs::perms::none);
    EXPECT_THAT(error(folder_ / "secret"), HasSubstr("Permission denied"));
  }
}

}  // namespace
}  // namespace quince
