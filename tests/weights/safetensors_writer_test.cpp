#include "weights/safetensors_writer.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "weights/files.h"
#include "weights/json_file.h"
#include "weights/safetensors.h"

namespace quince {
namespace {

namespace fs = std::filesystem;
using test::user_error;
using ::testing::HasSubstr;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::vector<std::string> entries(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string text_of(const TensorView& tensor) {
  return {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()};
}

TEST(SafetensorsWriter, WritesWhatTheReaderReads) {
  test::TempFolder folder;
  const fs::path out = folder / "out";
  {
    SafetensorsWriter writer(out);
    writer.declare("bytes", TensorType::u8, {3});
    writer.declare("wide", TensorType::f32, {2, 2});
    writer.declare("empty", TensorType::f16, {0, 4});
    writer.declare("half", TensorType::bf16, {2});
    writer.start();
    EXPECT_EQ(writer.shards(), 1);
    // Any order, in pieces.
    writer.write("wide", bytes_of("89abcdef"), 8);
    writer.write("bytes", bytes_of("xyz"));
    writer.write("half", bytes_of("half"));
    writer.write("wide", bytes_of("01234567"), 0);
    writer.add_file("config.json", "{}");
    writer.copy_file(folder.write("elsewhere.txt", "copied"), "tokenizer.json");
    EXPECT_FALSE(fs::exists(out));
    writer.commit();
  }
  EXPECT_THAT(
      entries(out),
      ::testing::ElementsAre(
          "config.json", "model.safetensors", "model.safetensors.index.json", "tokenizer.json"));
  const auto content = open_safetensors_directory(out);
  ASSERT_EQ(content.tensors.size(), 4u);
  for (const TensorView& tensor : content.tensors) {
    if (tensor.name == "wide") {
      EXPECT_EQ(text_of(tensor), "0123456789abcdef");
      EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.bytes.data()) % 4, 0u);
    } else if (tensor.name == "bytes") {
      EXPECT_EQ(text_of(tensor), "xyz");
    } else if (tensor.name == "half") {
      EXPECT_EQ(tensor.type, TensorType::bf16);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.bytes.data()) % 2, 0u);
    }
  }
  EXPECT_EQ(content.metadata.at("format"), "mlx");
  EXPECT_EQ(test::read_file(out / "tokenizer.json"), "copied");
  EXPECT_THAT(entries(folder.path()), ::testing::ElementsAre("elsewhere.txt", "out"));
}

TEST(SafetensorsWriter, ShardsAndIndex) {
  test::TempFolder folder;
  const fs::path out = folder / "out";
  SafetensorsWriter writer(out, {.max_shard_bytes = 10, .metadata = {}, .total_parameters = 30});
  writer.declare("a", TensorType::u8, {6});
  writer.declare("b", TensorType::u8, {4});
  writer.declare("c", TensorType::u8, {1});
  writer.declare("huge", TensorType::u8, {100});
  writer.declare("d", TensorType::u8, {1});
  writer.start();
  EXPECT_EQ(writer.shards(), 4);
  for (const char* name : {"huge", "d", "c", "b", "a"}) {
    writer.write(
        name,
        bytes_of(std::string(
            name == std::string("huge") ? 100
            : name == std::string("a")  ? 6
            : name == std::string("b")  ? 4
                                        : 1,
            name[0])));
  }
  writer.commit();
  const auto index = parse_json_object(
      test::read_file(out / "model.safetensors.index.json"), "model.safetensors.index.json");
  EXPECT_EQ(index.at("metadata").at("total_size"), 112);
  EXPECT_EQ(index.at("metadata").at("total_parameters"), 30);
  EXPECT_EQ(index.at("weight_map").at("b"), "model-00001-of-00004.safetensors");
  EXPECT_EQ(index.at("weight_map").at("huge"), "model-00003-of-00004.safetensors");
  const auto content = open_safetensors_directory(out);
  EXPECT_EQ(content.tensors.size(), 5u);
  for (const TensorView& tensor : content.tensors) {
    EXPECT_EQ(text_of(tensor), std::string(tensor.bytes.size(), tensor.name[0]));
  }
}

TEST(SafetensorsWriter, NothingIsLeftWithoutCommit) {
  test::TempFolder folder;
  {
    SafetensorsWriter writer(folder / "out");
    writer.declare("a", TensorType::u8, {6});
    writer.start();
    writer.write("a", bytes_of("abc"));
    EXPECT_THROW(writer.commit(), std::logic_error);  // 3 bytes are missing
    EXPECT_EQ(entries(folder.path()).size(), 1u);     // the hidden folder
  }
  EXPECT_TRUE(entries(folder.path()).empty());
}

// A killed program cannot tidy up; the next one does, and leaves alone what is in use.
TEST(SafetensorsWriter, LeftoversOfKilledOnesGo) {
  test::TempFolder folder;
  const fs::path out = folder / "out";
  folder.write(".out.tmp-abcdef/model.safetensors", "half");
  folder.write(".out.tmp-notours/keep", "x");
  folder.write(".other.tmp-abcdef/keep", "x");
  fs::create_symlink(folder / "elsewhere", folder / ".out.tmp-linked");
  SafetensorsWriter first(out);
  EXPECT_EQ(entries(folder.path()).size(), 4u);
  EXPECT_FALSE(fs::exists(folder / ".out.tmp-abcdef"));
  {
    SafetensorsWriter second(out);
    EXPECT_EQ(entries(folder.path()).size(), 5u);
  }
  first.declare("x", TensorType::u8, {1});
  first.start();
  first.write("x", bytes_of("x"));
  first.commit();
  EXPECT_TRUE(fs::exists(out / "model.safetensors"));
  EXPECT_EQ(entries(folder.path()).size(), 4u);
}

TEST(SafetensorsWriter, AnExistingDirectoryIsNotTouched) {
  test::TempFolder folder;
  folder.write("out/precious.txt", "x");
  EXPECT_THAT(
      user_error([&] { SafetensorsWriter writer(folder / "out"); }), HasSubstr("exists already"));
  folder.write("file", "x");
  EXPECT_THAT(
      user_error([&] { SafetensorsWriter writer(folder / "file"); }), HasSubstr("exists already"));
  EXPECT_EQ(test::read_file(folder / "out/precious.txt"), "x");
  fs::create_directories(folder / "empty");
  SafetensorsWriter writer(fs::path((folder / "empty").string() + "/"));
  writer.start();
  writer.commit();
  EXPECT_TRUE(fs::exists(folder / "empty" / "model.safetensors.index.json"));
}

TEST(SafetensorsWriter, PlacesThatCannotBe) {
  test::TempFolder folder;
  folder.write("file", "x");
  EXPECT_THAT(
      user_error([&] { SafetensorsWriter writer(folder / "file" / "out"); }), HasSubstr("cannot"));
  SafetensorsWriter writer(folder / "out");
  writer.declare("a", TensorType::f32, {int64_t{1} << 50});
  EXPECT_THAT(user_error([&] { writer.start(); }), HasSubstr("bytes are needed, the disk has"));
}

TEST(SafetensorsWriter, MisuseIsRefused) {
  test::TempFolder folder;
  SafetensorsWriter writer(folder / "out");
  EXPECT_THROW(writer.declare("q", TensorType::q4_0, {32}), std::invalid_argument);
  EXPECT_THROW(writer.declare("n", TensorType::u8, {-1}), std::invalid_argument);
  writer.declare("a", TensorType::u8, {2});
  EXPECT_THROW(writer.declare("a", TensorType::u8, {2}), std::invalid_argument);
  writer.start();
  EXPECT_THROW(writer.write("b", bytes_of("x")), std::invalid_argument);
  EXPECT_THROW(writer.write("a", bytes_of("abc")), std::invalid_argument);
  EXPECT_THROW(writer.write("a", bytes_of("x"), 2), std::invalid_argument);
  EXPECT_THROW(writer.add_file("../x", "x"), std::invalid_argument);
}

TEST(SafetensorsWriter, SeveralThreads) {
  test::TempFolder folder;
  SafetensorsWriter writer(folder / "out");
  constexpr int kTensors = 8;
  for (int i = 0; i < kTensors; ++i) {
    writer.declare(std::string(1, static_cast<char>('a' + i)), TensorType::u8, {1000});
  }
  writer.start();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kTensors; ++i) {
        const std::string name(1, static_cast<char>('a' + i));
        writer.write(name, bytes_of(std::string(250, name[0])), static_cast<uint64_t>(250 * t));
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  writer.commit();
  for (const TensorView& tensor : open_safetensors_directory(folder / "out").tensors) {
    EXPECT_EQ(text_of(tensor), std::string(1000, tensor.name[0]));
  }
}

}  // namespace
}  // namespace quince
