#include "cache/memory_ladder.h"

#include <random>

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

namespace quince {
namespace {

using testing::HasSubstr;

TEST(MemoryLadder, SaysEachRungOnceUntilItIsCalmAgain) {
  MemoryLadder ladder(100, 1'000'000);
  const auto at = [&](int64_t held, int64_t kept, int64_t preempted = 0, int64_t refused = 0) {
    return ladder.look({held, kept, preempted, refused}).value_or("");
  };
  EXPECT_EQ(at(50, 19), "");
  EXPECT_THAT(at(50, 20), HasSubstr("70.0 of 100.0 MB: what was used longest ago is given up"));
  EXPECT_EQ(at(60, 10), "") << "still";
  EXPECT_EQ(at(65, 0), "") << "not calm yet";
  EXPECT_EQ(at(70, 0), "");
  EXPECT_THAT(at(99, 0, 1), HasSubstr("wait for each other"));
  EXPECT_EQ(at(99, 0, 2), "");
  EXPECT_THAT(at(90, 0, 2, 1), HasSubstr("refused"));
  EXPECT_EQ(ladder.rung(), Rung::refuse);
  EXPECT_EQ(ladder.alarms(), 1);
  EXPECT_EQ(at(59, 0, 2, 1), "");
  EXPECT_EQ(ladder.rung(), Rung::none);
  EXPECT_THAT(at(80, 0, 2, 1), HasSubstr("given up"));
  EXPECT_EQ(ladder.alarms(), 2);
  EXPECT_EQ(name(ladder.rung()), "evict");
}

TEST(MemoryLadder, RandomHistoriesOnlyClimbUntilCalm) {
  std::mt19937 random(7);
  MemoryLadder ladder(1000, 10);
  MemoryUse use;
  Rung before = Rung::none;
  int lines = 0;
  for (int i = 0; i < 100000; ++i) {
    use.held = std::clamp<int64_t>(use.held + static_cast<int64_t>(random() % 201) - 100, 0, 1000);
    use.kept = std::min<int64_t>(random() % 300, 1000 - use.held);
    use.preemptions += use.held > 950 && random() % 4 == 0 ? 1 : 0;
    use.refusals += random() % 5000 == 0 ? 1 : 0;
    const bool said = ladder.look(use).has_value();
    const int64_t all = use.held + use.kept;
    ASSERT_EQ(said, ladder.rung() > before) << "a line for each rung that is reached";
    if (ladder.rung() < before) {
      ASSERT_LT(all, 600);
    }
    if (all >= 700) {
      ASSERT_GE(ladder.rung(), Rung::evict);
    }
    before = ladder.rung();
    lines += said ? 1 : 0;
  }
  EXPECT_GT(lines, 100);
}

}  // namespace
}  // namespace quince
