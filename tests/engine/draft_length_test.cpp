#include "engine/speculation/draft_length.h"

#include <gtest/gtest.h>

namespace quince {
namespace {

StepCost cost(double fixed, double per_row) {
  StepCost cost;
  for (int i = 0; i < 100; ++i) {
    const int rows = 1 + i % 4;
    cost.took(rows, fixed + per_row * rows);
  }
  return cost;
}

TEST(StepCost, FindsTheLine) {
  const StepCost line = cost(2.0, 0.25);
  EXPECT_NEAR(line.per_row(), 0.25, 1e-6);
  EXPECT_NEAR(line.seconds(8), 4.0, 1e-6);
}

TEST(StepCost, FollowsWhatChanges) {
  StepCost line = cost(2.0, 0.25);
  for (int i = 0; i < 600; ++i) {
    const int rows = 1 + i % 4;
    line.took(rows, 1.0 + rows);
  }
  EXPECT_NEAR(line.per_row(), 1.0, 0.01);
}

TEST(StepCost, KnowsNothingAtFirst) {
  EXPECT_EQ(StepCost().seconds(1), 0);
  EXPECT_EQ(best_draft_length(0.99, StepCost(), 1, 8), 0);
}

TEST(DraftLength, GrowsWithTheProbability) {
  const StepCost cheap = cost(2.0, 0.1);
  int before = 0;
  for (const double p : {0.05, 0.3, 0.6, 0.8, 0.95}) {
    const int now = best_draft_length(p, cheap, 1, 16);
    EXPECT_GE(now, before) << p;
    before = now;
  }
  EXPECT_EQ(best_draft_length(0.05, cheap, 1, 16), 0);
  EXPECT_GE(before, 8);
}

// Where each row costs as much as a step of its own, no guess is worth it.
TEST(DraftLength, NothingWhereRowsAreDear) {
  EXPECT_EQ(best_draft_length(0.9, cost(0.0, 1.0), 8, 8), 0);
  EXPECT_EQ(best_draft_length(0.9, cost(1.0, 0.01), 1, 8, 2.0), 0);  // a dear draft model
}

TEST(DraftRecord, LearnsAndForgets) {
  DraftRecord record(0.5);
  EXPECT_NEAR(record.probability(), 0.5, 1e-9);
  for (int i = 0; i < 30; ++i) {
    record.judged(4, 4);
  }
  EXPECT_GT(record.probability(), 0.9);
  for (int i = 0; i < 60; ++i) {
    record.judged(4, 0);
  }
  EXPECT_LT(record.probability(), 0.2);
}

TEST(DraftRecord, TriesAgainNowAndThen) {
  DraftRecord record;
  int tries = 0;
  for (int i = 0; i < 320; ++i) {
    tries += record.try_again() ? 1 : 0;
  }
  EXPECT_EQ(tries, 10);
}

}  // namespace
}  // namespace quince
