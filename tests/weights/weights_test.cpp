#include "weights/weights.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "weights/files.h"

namespace quince {
namespace {

using test::user_error;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TensorView tensor(const std::string& name) {
  return make_tensor(name, TensorType::u8, {2, 3}, std::vector<std::byte>(6));
}

TEST(Weights, TakenOnce) {
  Weights weights({tensor("b"), tensor("a")}, "x.gguf", {{"bits", 4}});
  EXPECT_THAT(weights.names(), ElementsAre("a", "b"));
  EXPECT_EQ(weights.quantization().at("bits"), 4);
  EXPECT_EQ(weights.take("a", {2, 3}).name, "a");
  EXPECT_FALSE(weights.has("a"));
  EXPECT_THAT(user_error([&] { weights.take("a"); }), HasSubstr("a: missing in x.gguf"));
  EXPECT_FALSE(weights.maybe("a"));
  EXPECT_THAT(
      user_error([&] { weights.take("b", {3, 2}); }),
      HasSubstr("b: has shape [2, 3] in x.gguf, want [3, 2]"));
}

TEST(Weights, RepairSteps) {
  Weights weights({tensor("a"), tensor("b"), tensor("c")}, "x", {});
  weights.rename("a", "z");
  EXPECT_EQ(weights.take("z").name, "z");
  weights.drop("b");
  weights.drop("absent");
  weights.put(tensor("d"));
  EXPECT_THAT(weights.names(), ElementsAre("c", "d"));
  EXPECT_THAT(user_error([&] { weights.put(tensor("c")); }), HasSubstr("c: is twice"));
  EXPECT_THAT(user_error([&] { weights.rename("c", "d"); }), HasSubstr("d: is twice"));
  EXPECT_THAT(user_error([&] { weights.rename("q", "r"); }), HasSubstr("q: missing"));
}

TEST(Weights, LeftoversAreNamed) {
  Weights none({}, "x", {});
  none.check_all_taken();
  Weights one({tensor("odd")}, "x", {});
  EXPECT_THAT(user_error([&] { one.check_all_taken(); }), HasSubstr("1 tensor that"));
  std::vector<TensorView> many;
  for (char c = 'a'; c < 'a' + 12; ++c) {
    many.push_back(tensor(std::string("t.") + c));
  }
  Weights twelve(std::move(many), "x", {});
  const std::string message = user_error([&] { twelve.check_all_taken(); });
  EXPECT_THAT(message, HasSubstr("12 tensors"));
  EXPECT_THAT(message, HasSubstr("t.j, ..."));
  EXPECT_THAT(message, ::testing::Not(HasSubstr("t.k")));
}

}  // namespace
}  // namespace quince
