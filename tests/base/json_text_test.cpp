#include "base/json_text.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace quince {
namespace {

namespace json = boost::json;

TEST(JsonText, NumbersReadWell) {
  json::array numbers{100000.0, 1e-5, 0.1, 3, -7.5, 1e300, uint64_t{1} << 63};
  EXPECT_EQ(compact_json(numbers), "[100000.0,1e-05,0.1,3,-7.5,1e+300,9223372036854775808]");
}

TEST(JsonText, NoInfinities) {
  double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(compact_json(json::array{infinity, std::nan("")}), "[null,null]");
}

TEST(JsonText, ReadsBackTheSame) {
  json::value value = json::parse(
      R"({"a":[1,2.5,[],{}],"\"\n":{"b":null,"c":[true,"x"]},"e":1e-7,"f":0.1,"g":[1,2]})");
  EXPECT_EQ(json::parse(compact_json(value)), value);
  EXPECT_EQ(json::parse(pretty_json(value)), value);
}

TEST(JsonText, PrettyForm) {
  json::value value = json::parse(R"({"a":[1,2],"b":["x","y"],"c":{},"d":{"e":[]}})");
  EXPECT_EQ(
      pretty_json(value),
      "{\n  \"a\": [1, 2],\n  \"b\": [\n    \"x\",\n    \"y\"\n  ],\n  \"c\": {},\n"
      "  \"d\": {\n    \"e\": []\n  }\n}\n");
}

}  // namespace
}  // namespace quince
