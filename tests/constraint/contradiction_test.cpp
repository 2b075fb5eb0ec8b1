#include "constraint/contradiction.h"

#include <gtest/gtest.h>
#include <boost/json.hpp>

namespace quince {
namespace {

std::string found(const std::string& schema) {
  return contradiction(boost::json::parse(schema)).value_or("");
}

TEST(Contradiction, IsTold) {
  EXPECT_EQ(
      found(R"({"type":"string","minLength":5,"maxLength":2})"),
      "nothing fits: minLength is 5 and maxLength 2");
  EXPECT_EQ(
      found(R"({"type":"number","minimum":0.5,"maximum":-1e3})"),
      "nothing fits: minimum is 5E-1 and maximum -1E3");
  EXPECT_EQ(
      found(
          R"({"type":"object","required":["a"],"properties":{"a":{"type":"array","minItems":1,"items":{"type":"integer","minimum":3,"maximum":2}}}})"),
      "a: items: nothing fits: minimum is 3 and maximum 2");
}

TEST(Contradiction, IsNotWhereSomethingFits) {
  for (const char* schema :
       {"true",
        "{}",
        "5",
        R"({"type":"string","minLength":2,"maxLength":2})",
        R"({"type":["string","null"],"minLength":5,"maxLength":2})",
        R"({"minLength":5,"maxLength":2})",
        R"({"type":"integer","minLength":5,"maxLength":2})",
        R"({"type":"string","minLength":"5","maxLength":2})",
        R"({"type":"array","items":{"type":"integer","minimum":3,"maximum":2}})",
        R"({"type":"object","properties":{"a":{"type":"integer","minimum":3,"maximum":2}}})",
        R"({"type":"object","required":[1,"b"],"properties":{}})",
        R"({"type":"object","required":"a","properties":[]})"}) {
    EXPECT_EQ(found(schema), "") << schema;
  }
}

}  // namespace
}  // namespace quince
