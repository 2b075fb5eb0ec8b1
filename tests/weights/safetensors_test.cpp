#include "weights/safetensors.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "weights/files.h"

namespace quince {
namespace {

namespace fs = std::filesystem;
using test::safetensors_bytes;
using test::user_error;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

SafetensorsContent parse(const std::string& bytes) {
  return parse_safetensors(std::as_bytes(std::span(bytes)), "x.safetensors", nullptr);
}

std::string error_of(const std::string& header, const std::string& data = "") {
  return user_error([&] { parse(safetensors_bytes(header, data)); });
}

std::string one_tensor(
    const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"w":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets +
         "}}";
}

TEST(Safetensors, ReadsTensorsAndMetadata) {
  // Padding spaces, tensors in another order than their data, an empty one and a scalar.
  const std::string header = R"({"b":{"dtype":"BF16","shape":[2,2],"data_offsets":[4,12]},)"
                             R"("__metadata__":{"format":"pt"},)"
                             R"("e":{"dtype":"F32","shape":[0,7],"data_offsets":[4,4]},)"
                             R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}   )";
  const std::string bytes = safetensors_bytes(header, "0123456789ab");
  const SafetensorsContent content = parse(bytes);
  ASSERT_EQ(content.tensors.size(), 3u);
  EXPECT_EQ(content.tensors[0].name, "a");
  EXPECT_EQ(content.tensors[0].size(), 1);
  EXPECT_EQ(content.tensors[1].name, "e");
  EXPECT_EQ(content.tensors[1].size(), 0);
  EXPECT_EQ(content.tensors[2].type, TensorType::bf16);
  EXPECT_THAT(content.tensors[2].shape, ElementsAre(2, 2));
  EXPECT_EQ(
      std::string(reinterpret_cast<const char*>(content.tensors[2].bytes.data()), 8), "456789ab");
  EXPECT_EQ(content.metadata.at("format").as_string(), "pt");
}

TEST(Safetensors, EveryTypeName) {
  for (int i = 0; i <= static_cast<int>(TensorType::mxfp4); ++i) {
    const auto type = static_cast<TensorType>(i);
    if (const auto name = safetensors_dtype(type)) {
      EXPECT_EQ(safetensors_type(*name), type);
      const int size = info(type).bytes;
      const auto content = parse(safetensors_bytes(
          one_tensor(std::string(*name), "[3]", "[0," + std::to_string(3 * size) + "]"),
          std::string(static_cast<size_t>(3 * size), 'x')));
      EXPECT_EQ(content.tensors[0].type, type);
    } else {
      EXPECT_GT(info(type).block, 1);
    }
  }
}

// ST-01: shape, offsets and the file must agree.
TEST(Safetensors, DeclaresMoreThanItHolds) {
  EXPECT_THAT(
      error_of(one_tensor("F32", "[1000,1000]", "[0,4]"), "0123"),
      HasSubstr("tensor w: F32 of shape [1000, 1000] needs 4000000 bytes"));
  EXPECT_THAT(
      error_of(one_tensor("F32", "[2,2]", "[0,16]"), "01234567"),
      HasSubstr("tensor w: its data ends at byte 16 of the data part, but the file holds 8"));
  EXPECT_THAT(error_of(one_tensor("F32", "[2,2]", "[16,0]"), "01234567"), HasSubstr("reversed"));
  EXPECT_EQ(
      parse(safetensors_bytes(one_tensor("F32", "[2,2]", "[0,16]"), "0123456789abcdef"))
          .tensors.size(),
      1u);
}

TEST(Safetensors, HolesOverlapsAndTails) {
  const auto two = [](const std::string& first, const std::string& second) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + first +
           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}";
  };
  EXPECT_THAT(error_of(two("[0,4]", "[2,6]"), "012345"), HasSubstr("tensor b"));
  EXPECT_THAT(error_of(two("[0,4]", "[2,6]"), "012345"), HasSubstr("inside"));
  EXPECT_THAT(error_of(two("[0,4]", "[5,9]"), "012345678"), HasSubstr("hole"));
  EXPECT_THAT(error_of(two("[1,5]", "[5,9]"), "012345678"), HasSubstr("tensor a"));
  EXPECT_THAT(error_of(two("[0,4]", "[4,8]"), "0123456789"), HasSubstr("the file holds 10"));
  EXPECT_THAT(error_of("{}", "01"), HasSubstr("the file holds 2"));
}

TEST(Safetensors, ShapesThatCannotBe) {
  EXPECT_THAT(
      error_of(one_tensor("U8", "[9223372036854775807,2]", "[0,4]"), "0123"),
      HasSubstr("more elements than can be counted"));
  EXPECT_THAT(
      error_of(one_tensor("F32", "[4294967296,4294967296]", "[0,0]")),
      HasSubstr("more elements than can be counted"));
  for (const char* shape : {"[-1]", "[1.5]", "[\"2\"]", "[18446744073709551615]", "[null]"}) {
    EXPECT_THAT(error_of(one_tensor("U8", shape, "[0,1]"), "0"), HasSubstr("whole number"));
  }
  std::string many = "[1";
  for (int i = 0; i < 100; ++i) {
    many += ",1";
  }
  EXPECT_THAT(error_of(one_tensor("U8", many + "]", "[0,1]"), "0"), HasSubstr("101 dimensions"));
}

TEST(Safetensors, BadEntries) {
  EXPECT_THAT(error_of(R"({"w":5})"), HasSubstr("tensor w"));
  EXPECT_THAT(error_of(R"({"w":{}})"), HasSubstr("\"dtype\""));
  EXPECT_THAT(error_of(one_tensor("F4", "[1]", "[0,1]"), "0"), HasSubstr("F4"));
  EXPECT_THAT(error_of(one_tensor("U8", "[1]", "[0]"), "0"), HasSubstr("data_offsets"));
  EXPECT_THAT(error_of(one_tensor("U8", "[1]", "5"), "0"), HasSubstr("data_offsets"));
  EXPECT_THAT(error_of(one_tensor("U8", "5", "[0,1]"), "0"), HasSubstr("shape"));
  EXPECT_THAT(error_of(R"({"__metadata__":1})"), HasSubstr("__metadata__"));
  const std::string w = R"("w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_THAT(error_of("{" + w + "," + w + "}", "0"), HasSubstr("\"w\" comes twice"));
}

TEST(Safetensors, BadHeaders) {
  const auto error = [](const std::string& bytes) { return user_error([&] { parse(bytes); }); };
  EXPECT_THAT(error(""), HasSubstr("0 bytes"));
  EXPECT_THAT(error("1234567"), HasSubstr("7 bytes"));
  EXPECT_THAT(error("version https://git-lfs.github.com/spec/v1\n"), HasSubstr("git lfs pull"));
  EXPECT_THAT(error("<!DOCTYPE html><html>"), HasSubstr("a web page"));
  EXPECT_THAT(error("GGUF" + test::raw<uint64_t>(3)), HasSubstr("a GGUF file"));
  EXPECT_THAT(error("PK\3\4 and so on, a zip"), HasSubstr("zip"));
  EXPECT_THAT(error(std::string(64, '\0')), HasSubstr("zeros"));
  EXPECT_THAT(error(test::raw<uint64_t>(1000) + "{}"), HasSubstr("needs 1008 bytes"));
  EXPECT_THAT(error(test::raw<uint64_t>(~0ull) + "{}"), HasSubstr("not a safetensors file"));
  EXPECT_THAT(error(test::raw<uint64_t>(100'000'001) + "{}"), HasSubstr("not a safetensors file"));
  EXPECT_THAT(error(safetensors_bytes("[]", "")), HasSubstr("not a safetensors file"));
  EXPECT_THAT(error(safetensors_bytes("{", "")), HasSubstr("not valid JSON"));
  EXPECT_THAT(error(safetensors_bytes("{} x", "")), HasSubstr("not valid JSON"));
  EXPECT_THAT(error(safetensors_bytes("{\"\xff\":1}", "")), HasSubstr("not valid JSON"));
  std::string deep = R"({"w":)" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  EXPECT_THAT(error(safetensors_bytes(deep, "")), HasSubstr("deep"));
}

class SafetensorsDirectory : public ::testing::Test {
 protected:
  void shard(const std::string& name, const std::string& tensor) {
    const std::string header =
        R"({")" + tensor + R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
    folder_.write(name, safetensors_bytes(header, "x"));
  }
  void index(const std::string& map) {
    folder_.write("model.safetensors.index.json", R"({"metadata":{},"weight_map":)" + map + "}");
  }
  std::vector<std::string> names() {
    std::vector<std::string> result;
    for (const auto& tensor : open_safetensors_directory(folder_.path()).tensors) {
      result.push_back(tensor.name);
    }
    return result;
  }
  std::string error() {
    return user_error([&] { open_safetensors_directory(folder_.path()); });
  }
  test::TempFolder folder_;
};

TEST_F(SafetensorsDirectory, SingleFileShardsAndNumberedParts) {
  EXPECT_THAT(error(), HasSubstr("no .safetensors file"));
  folder_.write("pytorch_model.bin", "x");
  EXPECT_THAT(error(), HasSubstr("PyTorch"));
  shard("model-00001-of-00002.safetensors", "a");
  EXPECT_THAT(error(), HasSubstr("model-00002-of-00002.safetensors is missing"));
  shard("model-00002-of-00002.safetensors", "b");
  shard("adapter.safetensors", "c");
  EXPECT_THAT(names(), ElementsAre("a", "b"));
  index(R"({"a":"model-00001-of-00002.safetensors","c":"adapter.safetensors"})");
  EXPECT_THAT(names(), ::testing::UnorderedElementsAre("a", "c"));
  shard("model.safetensors", "d");
  EXPECT_THAT(names(), ::testing::UnorderedElementsAre("a", "c"));
}

TEST_F(SafetensorsDirectory, TheIndexDecides) {
  shard("model.safetensors", "d");
  shard("other.safetensors", "e");
  EXPECT_THAT(names(), ElementsAre("d"));
  index(R"({"d":"model.safetensors"})");
  EXPECT_THAT(names(), ElementsAre("d"));
  index(R"({"d":"model.safetensors","e":"other.safetensors"})");
  EXPECT_THAT(names(), ElementsAre("d", "e"));
  // Left over from shards that have become one file.
  index(R"({"d":"model-00001-of-00002.safetensors","e":"other.safetensors"})");
  EXPECT_THAT(names(), ElementsAre("d"));
  index(R"({"d":"model.safetensors","f":"gone.safetensors"})");
  EXPECT_THAT(error(), HasSubstr("the shard gone.safetensors is missing"));
}

// A shard may hold an old copy of what the index has in another one.
TEST_F(SafetensorsDirectory, OldCopiesInOtherShardsAreNotRead) {
  shard("one.safetensors", "a");
  folder_.write(
      "two.safetensors",
      safetensors_bytes(
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
          R"("b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
          "yz"));
  index(R"({"a":"one.safetensors","b":"two.safetensors"})");
  const SafetensorsContent content = open_safetensors_directory(folder_.path());
  ASSERT_EQ(content.tensors.size(), 2u);
  EXPECT_EQ(content.tensors[0].bytes[0], std::byte{'x'});
  EXPECT_EQ(content.tensors[1].bytes[0], std::byte{'z'});
}

TEST_F(SafetensorsDirectory, IndexAndShardsDisagree) {
  index(R"({"a":"one.safetensors","b":"two.safetensors"})");
  shard("one.safetensors", "a");
  EXPECT_THAT(error(), HasSubstr("the shard two.safetensors is missing"));
  shard("two.safetensors", "z");
  EXPECT_THAT(error(), HasSubstr("tensor b is not in two.safetensors"));
  shard("two.safetensors", "b");
  EXPECT_THAT(names(), ElementsAre("a", "b"));
}

TEST_F(SafetensorsDirectory, TensorInTwoFiles) {
  shard("model-a.safetensors", "w");
  shard("model-b.safetensors", "w");
  EXPECT_THAT(error(), HasSubstr("tensor w is in two files"));
}

// ST-04: the hub cache is made of symbolic links.
TEST_F(SafetensorsDirectory, SymbolicLinksAreFollowed) {
  test::TempFolder blobs;
  const std::string header = R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  blobs.write("0a1b", safetensors_bytes(header, "x"));
  fs::create_symlink(blobs / "0a1b", folder_ / "model.safetensors");
  EXPECT_THAT(names(), ElementsAre("w"));
  fs::remove(folder_ / "model.safetensors");
  fs::create_symlink(blobs / "0a1b", folder_ / "part.safetensors");
  index(R"({"w":"part.safetensors"})");
  EXPECT_THAT(names(), ElementsAre("w"));
}

// ST-03: the names are checked before anything is opened. The outside path is a FIFO: opening it
// for reading would hang, were it not for MappedFile's O_NONBLOCK, so its access time is the
// witness.
TEST_F(SafetensorsDirectory, IndexMustNotLeaveTheFolder) {
  test::TempFolder outside;
  fs::create_directories(folder_ / "a");
  const fs::path fifo = folder_.path().parent_path() / "outside.safetensors";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const std::string bad[] = {
      R"("../outside.safetensors")",
      "\"" + fifo.string() + "\"",
      R"("a/../../outside.safetensors")",
      R"("a//x.safetensors")",
      R"("./x.safetensors")",
      R"("..\\outside.safetensors")",
      R"("C:x.safetensors")",
      R"("")",
      R"("x\u0000.safetensors")",
      R"("x\n.safetensors")",
      "\"" + std::string(5000, 'x') + ".safetensors\"",
      R"("..")",
      R"("model.bin")",
      "5",
      "null",
      "[\"x.safetensors\"]"};
  shard("good.safetensors", "good");
  for (const std::string& name : bad) {
    index(R"({"good":"good.safetensors","w":)" + name + "}");
    const std::string message = error();
    EXPECT_THAT(message, HasSubstr("model.safetensors.index.json")) << name;
    EXPECT_THAT(message, ::testing::Not(HasSubstr("not a regular file"))) << name;
    EXPECT_LT(message.size(), 400u) << name;
  }
  fs::remove(fifo);
}

TEST_F(SafetensorsDirectory, BadIndexes) {
  const auto with = [&](const std::string& text) {
    folder_.write("model.safetensors.index.json", text);
    return error();
  };
  EXPECT_THAT(with("{}"), HasSubstr("weight_map"));
  EXPECT_THAT(with("[]"), HasSubstr("JSON object"));
  EXPECT_THAT(with(R"({"weight_map":[]})"), HasSubstr("weight_map"));
  EXPECT_THAT(with(R"({"weight_map":{}})"), HasSubstr("names no tensor"));
  EXPECT_THAT(
      with(R"({"weight_map":{"a":"x.safetensors","a":"y.safetensors"}})"), HasSubstr("twice"));
  EXPECT_THAT(with("{\"weight_map\":"), HasSubstr("not valid JSON"));
}

TEST_F(SafetensorsDirectory, AFifoAsShardDoesNotHang) {
  ASSERT_EQ(::mkfifo((folder_ / "model.safetensors").c_str(), 0600), 0);
  EXPECT_THAT(error(), HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace quince
