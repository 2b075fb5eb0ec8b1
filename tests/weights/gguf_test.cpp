#include "weights/gguf.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <limits>
#include <string>

#include "weights/files.h"

namespace quince {
namespace {

namespace fs = std::filesystem;
using test::GgufBytes;
using test::raw;
using test::user_error;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

GgufFile parse(const std::string& bytes) {
  return GgufFile::parse(std::as_bytes(std::span(bytes)), "x.gguf", nullptr);
}
std::string error_of(const std::string& bytes) {
  return user_error([&] { parse(bytes); });
}

GgufBytes llama() {
  return GgufBytes().key_string("general.architecture", "llama");
}

TEST(Gguf, EveryMetadataType) {
  GgufBytes file;
  file.key("u8", 0, raw<uint8_t>(200))
      .key("i8", 1, raw<int8_t>(-3))
      .key("u16", 2, raw<uint16_t>(60000))
      .key("i16", 3, raw<int16_t>(-30000))
      .key("u32", 4, raw<uint32_t>(4000000000u))
      .key("i32", 5, raw<int32_t>(-7))
      .key("f32", 6, raw<float>(0.25f))
      .key("bool", 7, raw<uint8_t>(1))
      .key_string("string", "text")
      .key("u64", 10, raw<uint64_t>(1ull << 40))
      .key("i64", 11, raw<int64_t>(-(1ll << 40)))
      .key("f64", 12, raw<double>(1e100))
      .key("huge", 10, raw<uint64_t>(~0ull))
      .key_array<int32_t>("ints", 5, {1, -2, 3})
      .key_array<float>("floats", 6, {0.5f, -1.5f})
      .key_strings("strings", {"a", "", "ccc"})
      .key(
          "nested",
          9,
          raw<uint32_t>(9) + raw<uint64_t>(2) +
              // two arrays of u8
              raw<uint32_t>(0) + raw<uint64_t>(2) + "ab" + raw<uint32_t>(0) + raw<uint64_t>(1) +
              "c")
      .key_string("last", "end");
  const std::string bytes = file.build();
  const GgufFile gguf = parse(bytes);
  EXPECT_EQ(gguf.get_int("u8"), 200);
  EXPECT_EQ(gguf.get_int("i8"), -3);
  EXPECT_EQ(gguf.get_int("u16"), 60000);
  EXPECT_EQ(gguf.get_int("i16"), -30000);
  EXPECT_EQ(gguf.get_int("u32"), 4000000000);
  EXPECT_EQ(gguf.get_int("i32"), -7);
  EXPECT_EQ(gguf.get_float("f32"), 0.25);
  EXPECT_EQ(gguf.get_float("i32"), -7.0);
  EXPECT_EQ(gguf.get_bool("bool"), true);
  EXPECT_EQ(gguf.get_string("string"), "text");
  EXPECT_EQ(gguf.get_int("u64"), 1ll << 40);
  EXPECT_EQ(gguf.get_int("i64"), -(1ll << 40));
  EXPECT_EQ(gguf.get_float("f64"), 1e100);
  EXPECT_THAT(gguf.find("ints")->ints(), ElementsAre(1, -2, 3));
  EXPECT_THAT(gguf.find("floats")->floats(), ElementsAre(0.5f, -1.5f));
  EXPECT_THAT(gguf.find("ints")->numbers(), ElementsAre(1, -2, 3));
  EXPECT_THAT(gguf.find("strings")->strings(), ElementsAre("a", "", "ccc"));
  EXPECT_EQ(gguf.find("nested")->count, 2u);
  EXPECT_EQ(gguf.get_string("last"), "end");
  EXPECT_FALSE(gguf.get_int("nothing"));
  EXPECT_EQ(gguf.find("nothing"), nullptr);

  EXPECT_THAT(user_error([&] { gguf.get_int("string"); }), HasSubstr("string is of type string"));
  EXPECT_THAT(user_error([&] { gguf.get_int("huge"); }), HasSubstr("huge"));
  EXPECT_THAT(user_error([&] { gguf.get_string("u8"); }), HasSubstr("want a string"));
  EXPECT_TRUE(gguf.find("string")->strings().empty());
  EXPECT_TRUE(gguf.find("strings")->ints().empty());

  EXPECT_EQ(gguf.find("ints")->to_json(), (boost::json::array{1, -2, 3}));
  EXPECT_EQ(gguf.find("ints")->to_json(2), (boost::json::object{{"type", "i32"}, {"length", 3}}));
  EXPECT_EQ(gguf.find("strings")->to_json(), (boost::json::array{"a", "", "ccc"}));
  EXPECT_EQ(gguf.find("huge")->to_json(), boost::json::value(~0ull));
  EXPECT_EQ(gguf.find("bool")->to_json(), boost::json::value(true));
}

TEST(Gguf, TensorsShapesAndAlignment) {
  for (const uint64_t alignment : {8, 32, 64}) {
    GgufBytes file = llama();
    file.alignment = alignment;
    file.key_u32("general.alignment", static_cast<uint32_t>(alignment));
    file.tensor("a", {2, 3}, 0, std::string(24, 'a'));
    file.tensor("b", {32, 2}, 3, std::string(40, 'b'));
    file.tensor("scalar", {}, 24, "c");
    const std::string bytes = file.build();
    const GgufFile gguf = parse(bytes);
    ASSERT_EQ(gguf.tensors().size(), 3u);
    EXPECT_THAT(gguf.tensors()[0].shape, ElementsAre(3, 2));  // outermost first
    EXPECT_EQ(gguf.tensors()[0].bytes[0], std::byte{'a'});
    EXPECT_EQ(gguf.tensors()[1].type, TensorType::q4_1);
    EXPECT_EQ(gguf.tensors()[1].bytes.size(), 40u);
    EXPECT_EQ(gguf.tensors()[1].bytes[39], std::byte{'b'});
    EXPECT_EQ(gguf.tensors()[2].size(), 1);
  }
}

TEST(Gguf, Versions) {
  EXPECT_EQ(parse(GgufBytes(2).build()).version(), 2u);
  EXPECT_EQ(parse(GgufBytes(3).build()).version(), 3u);
  EXPECT_THAT(error_of(GgufBytes(1).build()), HasSubstr("version 1 is not supported"));
  EXPECT_THAT(error_of(GgufBytes(4).build()), HasSubstr("version 4 is not supported"));
  EXPECT_THAT(error_of(GgufBytes(0).build()), HasSubstr("version 0"));
  EXPECT_THAT(error_of(GgufBytes(0x03000000).build()), HasSubstr("big-endian"));
  EXPECT_THAT(error_of("PK\x03\x04 and so on, a zip"), HasSubstr("not a GGUF file: it is a zip"));
  EXPECT_THAT(error_of("<!DOCTYPE html><html>"), HasSubstr("a web page"));
  EXPECT_THAT(error_of("tjgg" + raw<uint32_t>(3)), HasSubstr("came before GGUF"));
  EXPECT_THAT(error_of("\x1f\x8b\x08 gzip"), HasSubstr("unpack it first"));
  EXPECT_THAT(error_of(std::string(64, '\0')), HasSubstr("zeros"));
  EXPECT_THAT(error_of(test::safetensors_bytes("{\"a\":{}}", "")), HasSubstr("the directory"));
  EXPECT_THAT(error_of("something else"), HasSubstr("does not begin with \"GGUF\""));
  EXPECT_THAT(error_of("version https://git-lfs.github.com/spec/v1\n"), HasSubstr("git lfs pull"));
  EXPECT_THAT(error_of(""), HasSubstr("cut off"));
}

// GGUF-01: dimensions whose products wrap, zero, too many.
TEST(Gguf, HostileDimensions) {
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  const auto error = [](const std::vector<uint64_t>& dims, uint32_t type) {
    GgufBytes file = llama();
    file.tensor_info("token_embd.weight", dims, type, 0).data(std::string(64, 'x'));
    const std::string message = error_of(file.build());
    EXPECT_THAT(message, HasSubstr("token_embd.weight"));
    return message;
  };
  EXPECT_THAT(error({kMax, 2}, 24), HasSubstr("more elements than can be counted"));
  EXPECT_THAT(error({4, (1ull << 62) + 1}, 0), HasSubstr("more elements than can be counted"));
  EXPECT_THAT(error({16, 0}, 0), HasSubstr("dimension 1 is 0"));
  EXPECT_THAT(error({1ull << 32, 1ull << 32}, 0), HasSubstr("more elements than can be counted"));
  EXPECT_THAT(error({~0ull, 16}, 0), HasSubstr("cannot be"));
  EXPECT_THAT(error({1, 1, 1, 1, 1}, 0), HasSubstr("5 dimensions"));
  EXPECT_THAT(error({33, 2}, 3), HasSubstr("no whole number of Q4_1 blocks"));
  EXPECT_THAT(error({1ull << 40}, 0), HasSubstr("too short"));

  const auto endless = llama().raw_info(GgufBytes::string("token_embd.weight") + raw(~0u)).build();
  EXPECT_THAT(error_of(endless), HasSubstr("tensor token_embd.weight has 4294967295 dimensions"));
}

TEST(Gguf, UnknownTensorTypes) {
  const auto error = [](uint32_t type) {
    return error_of(llama().tensor_info("t", {32}, type, 0).data(std::string(256, 'x')).build());
  };
  for (const uint32_t type : {4u, 9u, 15u, 31u, 36u, 1000u, ~0u}) {
    EXPECT_THAT(error(type), HasSubstr("ggml type " + std::to_string(type)));
  }
  EXPECT_THAT(error(31), HasSubstr("repacked"));
}

// GGUF-04 (a), (b), (c): offsets and sizes against the file.
TEST(Gguf, DataOutsideTheFile) {
  const auto with_offset = [](uint64_t offset) {
    return llama().tensor_info("t", {4}, 0, offset).data(std::string(16, 'x')).build();
  };
  EXPECT_EQ(parse(with_offset(0)).tensors().size(), 1u);
  EXPECT_THAT(error_of(with_offset(~0ull - 15)), HasSubstr("tensor t"));
  EXPECT_THAT(error_of(with_offset(~0ull - 31)), HasSubstr("outside any file"));
  EXPECT_THAT(error_of(with_offset(1ull << 62)), HasSubstr("tensor t"));
  EXPECT_THAT(error_of(with_offset(32)), HasSubstr("tensor t"));
  EXPECT_THAT(error_of(with_offset(4)), HasSubstr("no multiple of the alignment 32"));
  const std::string file = with_offset(0);
  EXPECT_THAT(error_of(with_offset(file.size() / 32 * 32)), HasSubstr("too short"));
}

TEST(Gguf, EveryTruncationIsAnError) {
  GgufBytes file = llama();
  file.key_strings("tokens", {"a", "bb"}).key_array<int32_t>("types", 5, {1, 2});
  file.tensor("t", {4, 4}, 0, std::string(64, 'x'));
  const std::string bytes = file.build();
  parse(bytes);
  for (size_t size = 0; size < bytes.size(); ++size) {
    // A copy of exactly this size, so that a sanitizer sees any read past it.
    const std::string cut(bytes.data(), size);
    const std::string message = error_of(cut);
    EXPECT_FALSE(message.empty()) << size;
  }
  const std::string message = error_of(bytes.substr(0, bytes.size() - 1));
  EXPECT_THAT(message, HasSubstr(std::to_string(bytes.size()) + " bytes are needed"));
  EXPECT_THAT(message, HasSubstr(std::to_string(bytes.size() - 1) + " are present"));
  EXPECT_THAT(
      error_of(bytes.substr(0, file.header().size())),
      HasSubstr(std::to_string(bytes.size()) + " bytes are needed"));
}

TEST(Gguf, ClaimsThatAreNotBelieved) {
  const std::string head = "GGUF" + raw<uint32_t>(3);
  EXPECT_THAT(error_of(head + raw(~0ull) + raw<uint64_t>(0)), HasSubstr("claims"));
  EXPECT_THAT(error_of(head + raw<uint64_t>(0) + raw(~0ull)), HasSubstr("claims"));
  EXPECT_THAT(error_of(head + raw<uint64_t>(1) + raw<uint64_t>(1)), HasSubstr("claims"));
  const auto with_value = [](uint32_t type, const std::string& value) {
    return error_of(GgufBytes().key("k", type, value + std::string(64, '\0')).build());
  };
  EXPECT_THAT(with_value(8, raw(~0ull)), HasSubstr("the value of k"));
  EXPECT_THAT(with_value(8, raw<uint64_t>(1000)), HasSubstr("needs 1000 bytes"));
  EXPECT_THAT(with_value(9, raw<uint32_t>(4) + raw(~0ull)), HasSubstr("elements"));
  EXPECT_THAT(with_value(9, raw<uint32_t>(4) + raw<uint64_t>(1ull << 62)), HasSubstr("elements"));
  EXPECT_THAT(with_value(9, raw<uint32_t>(8) + raw(~0ull)), HasSubstr("k"));
  EXPECT_THAT(with_value(13, ""), HasSubstr("unknown value type 13"));
  EXPECT_THAT(with_value(9, raw<uint32_t>(99) + raw<uint64_t>(0)), HasSubstr("type 99"));
  std::string deep;
  for (int i = 0; i < 1000; ++i) {
    deep += raw<uint32_t>(9) + raw<uint64_t>(1);
  }
  EXPECT_THAT(with_value(9, deep), HasSubstr("nests more than"));
}

TEST(Gguf, Duplicates) {
  EXPECT_THAT(
      error_of(llama().key_string("general.architecture", "qwen2").build()),
      HasSubstr("general.architecture comes twice"));
  EXPECT_THAT(
      error_of(llama().tensor_f32("t", {4}).tensor_f32("t", {4}).build()),
      HasSubstr("tensor t comes twice"));
}

TEST(Gguf, BadAlignment) {
  for (const uint32_t alignment : {0u, 3u, 48u, 1u << 31}) {
    EXPECT_THAT(
        error_of(GgufBytes().key_u32("general.alignment", alignment).build()),
        HasSubstr("general.alignment is " + std::to_string(alignment)));
  }
}

TEST(Gguf, PartNames) {
  const auto part = gguf_part_name("some-model-00002-of-00003.gguf");
  ASSERT_TRUE(part);
  EXPECT_EQ(part->stem, "some-model");
  EXPECT_EQ(part->part, 2);
  EXPECT_EQ(part->count, 3);
  EXPECT_FALSE(gguf_part_name("model.gguf"));
  EXPECT_FALSE(gguf_part_name("-00001-of-00002.gguf"));
  EXPECT_FALSE(gguf_part_name("m-00004-of-00003.gguf"));
  EXPECT_FALSE(gguf_part_name("m-00000-of-00003.gguf"));
  EXPECT_FALSE(gguf_part_name("m-0001-of-0003.gguf"));
  EXPECT_FALSE(gguf_part_name("m-+0001-of-00003.gguf"));
}

class GgufSet : public ::testing::Test {
 protected:
  void part(int number, int count, uint16_t no, uint16_t claimed, int32_t tensors = 3) {
    GgufBytes file;
    file.key_u16("split.no", no).key_u16("split.count", claimed);
    file.key("split.tensors.count", 5, raw(tensors));
    if (number == 1) {
      file.key_string("general.architecture", "llama");
    }
    file.tensor_f32("t" + std::to_string(number), {4}, static_cast<float>(number));
    folder_.write(name(number, count), file.build());
  }
  static std::string name(int number, int count) {
    char text[64];
    std::snprintf(text, sizeof(text), "x-%05d-of-%05d.gguf", number, count);
    return text;
  }
  std::string error(const std::string& file) {
    return user_error([&] { open_gguf_set(folder_ / file); });
  }
  test::TempFolder folder_;
};

TEST_F(GgufSet, AnyPartOpensTheWholeSet) {
  for (int i = 1; i <= 3; ++i) {
    part(i, 3, static_cast<uint16_t>(i - 1), 3);
  }
  for (int i = 1; i <= 3; ++i) {
    const auto parts = open_gguf_set(folder_ / name(i, 3));
    ASSERT_EQ(parts.size(), 3u);
    EXPECT_EQ(parts[0].get_string("general.architecture"), "llama");
    EXPECT_EQ(parts[1].tensors()[0].name, "t2");
    EXPECT_EQ(parts[2].tensors()[0].name, "t3");
  }
}

TEST_F(GgufSet, AMissingPartIsNamed) {
  part(1, 3, 0, 3);
  part(3, 3, 2, 3);
  EXPECT_THAT(error(name(1, 3)), HasSubstr("x-00002-of-00003.gguf: part 2 of 3 is missing"));
  EXPECT_THAT(error(name(3, 3)), HasSubstr("x-00002-of-00003.gguf"));
}

TEST_F(GgufSet, OneOfOneLoads) {
  part(1, 1, 0, 1, 1);
  EXPECT_EQ(open_gguf_set(folder_ / name(1, 1)).size(), 1u);
  // Named like a part, but without the keys: a file like any other.
  folder_.write(name(1, 2), llama().build());
  EXPECT_EQ(open_gguf_set(folder_ / name(1, 2)).size(), 1u);
}

TEST_F(GgufSet, MixedSetsAndWrongCounts) {
  part(1, 2, 0, 2, 2);
  part(2, 2, 0, 2, 2);  // says it is the first
  EXPECT_THAT(error(name(1, 2)), HasSubstr("different sets are mixed"));
  part(2, 2, 1, 5, 2);
  EXPECT_THAT(error(name(1, 2)), HasSubstr("different sets are mixed"));
  part(2, 2, 1, 2, 2);
  EXPECT_EQ(open_gguf_set(folder_ / name(1, 2)).size(), 2u);
  part(1, 2, 0, 2, 9);
  EXPECT_THAT(error(name(1, 2)), HasSubstr("hold 2 tensors, split.tensors.count says 9"));
  fs::rename(folder_ / name(1, 2), folder_ / "renamed.gguf");
  EXPECT_THAT(error("renamed.gguf"), HasSubstr("original names"));
}

TEST(Gguf, FilesThatAreNone) {
  test::TempFolder folder;
  EXPECT_THAT(user_error([&] { GgufFile::open(folder / "no.gguf"); }), HasSubstr("no.gguf"));
  EXPECT_THAT(user_error([&] { GgufFile::open(folder.path()); }), HasSubstr("not a regular file"));
  const auto fifo = folder / "fifo.gguf";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(user_error([&] { GgufFile::open(fifo); }), HasSubstr("not a regular file"));
  folder.write("empty.gguf", "");
  EXPECT_THAT(user_error([&] { GgufFile::open(folder / "empty.gguf"); }), HasSubstr("cut off"));
}

// 262,144 tokens with scores and types, as Gemma has.
TEST(Gguf, ALargeVocabularyOpensAtOnce) {
  std::vector<std::string> tokens;
  for (int i = 0; i < 262144; ++i) {
    tokens.push_back("token" + std::to_string(i));
  }
  test::TempFolder folder;
  const auto path = folder.write(
      "v.gguf",
      llama()
          .key_strings("tokenizer.ggml.tokens", tokens)
          .key_array<float>("tokenizer.ggml.scores", 6, std::vector<float>(262144))
          .build());
  const auto begin = std::chrono::steady_clock::now();
  const GgufFile file = GgufFile::open(path);
  const auto elapsed = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(file.find("tokenizer.ggml.tokens")->strings().back(), "token262143");
#if !defined(__SANITIZE_ADDRESS__) && defined(NDEBUG)
  EXPECT_LT(std::chrono::duration<double>(elapsed).count(), 0.030);
#endif
  (void)elapsed;
}

}  // namespace
}  // namespace quince
