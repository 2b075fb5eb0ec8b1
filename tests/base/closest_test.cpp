#include "base/closest.h"

#include <gtest/gtest.h>

namespace quince {
namespace {

TEST(Closest, FindsSlips) {
  std::vector<std::string> names{"run", "pull", "inspect", "convert", "bench"};
  EXPECT_EQ(closest("rnu", names), "run");
  EXPECT_EQ(closest("benhc", names), "bench");
  EXPECT_EQ(closest("inspct", names), "inspect");
  EXPECT_EQ(closest("convrt", names), "convert");
  EXPECT_FALSE(closest("serve", names));
  EXPECT_FALSE(closest("", names));
}

}  // namespace
}  // namespace quince
