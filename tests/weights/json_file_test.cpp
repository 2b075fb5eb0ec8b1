#include "weights/json_file.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "weights/files.h"

namespace quince {
namespace {

using test::user_error;
using ::testing::HasSubstr;

TEST(JsonFile, Errors) {
  EXPECT_EQ(parse_json(" {\"a\": [1, 2.5]} \n", "x").at("a").as_array().size(), 2u);
  EXPECT_THAT(user_error([] { parse_json("{\"a\": tru}", "x"); }), HasSubstr("x: not valid JSON"));
  EXPECT_THAT(user_error([] { parse_json("", "x"); }), HasSubstr("x: not valid JSON"));
  EXPECT_THAT(user_error([] { parse_json("{} {}", "x"); }), HasSubstr("x: not valid JSON"));
  EXPECT_THAT(user_error([] { parse_json("{\"a\": \"\xff\"}", "x"); }), HasSubstr("not valid"));
  EXPECT_THAT(
      user_error([] { parse_json(std::string(1'000'000, '['), "x"); }), HasSubstr("64 levels"));
  EXPECT_THAT(user_error([] { parse_json_object("5", "x"); }), HasSubstr("JSON object, found 5"));
}

TEST(JsonFile, UniqueKeys) {
  const JsonLimits unique{.unique_keys = true};
  EXPECT_THAT(
      user_error([&] { parse_json(R"({"a":{"b":1,"c":2,"b":3}})", "x", unique); }),
      HasSubstr("\"b\" comes twice"));
  EXPECT_THAT(
      user_error([&] { parse_json(R"({"ab":1,"\u0061b":3})", "x", unique); }),
      HasSubstr("\"ab\" comes twice"));
  parse_json(R"([{"a":1},{"a":1,"b":{"a":1}}])", "x", unique);
}

TEST(JsonFile, TypedLookUps) {
  const auto object = parse_json_object(
      R"({"i":5,"whole":2.0,"half":2.5,"n":null,"s":"t","big":18446744073709551615})", "x");
  EXPECT_EQ(json_int(object, "i", "x"), 5);
  EXPECT_EQ(json_int(object, "whole", "x"), 2);
  EXPECT_EQ(json_int(object, "n", "x"), std::nullopt);
  EXPECT_EQ(json_int(object, "absent", "x"), std::nullopt);
  EXPECT_EQ(json_string(object, "s", "x"), "t");
  EXPECT_THAT(user_error([&] { json_int(object, "half", "x"); }), HasSubstr("x: half is 2.5"));
  EXPECT_THAT(user_error([&] { json_int(object, "s", "x"); }), HasSubstr("x: s is \"t\""));
  EXPECT_THAT(user_error([&] { json_int(object, "big", "x"); }), HasSubstr("x: big"));
  EXPECT_THAT(user_error([&] { json_string(object, "i", "x"); }), HasSubstr("want a string"));
}

TEST(JsonFile, Reading) {
  test::TempFolder folder;
  const auto path = folder.write("a.txt", "hello");
  EXPECT_EQ(read_text_file(path, 5), "hello");
  EXPECT_THAT(user_error([&] { read_text_file(path, 4); }), HasSubstr("over the limit of 4"));
  EXPECT_FALSE(read_text_file_if_any(folder / "b.txt", 10));
  EXPECT_THAT(user_error([&] { read_text_file(folder / "b.txt", 10); }), HasSubstr("no such file"));
  EXPECT_THAT(user_error([&] { read_text_file(folder.path(), 10); }), HasSubstr("not a regular"));
}

}  // namespace
}  // namespace quince
