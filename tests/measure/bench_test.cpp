#include "measure/bench.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/fakes.h"

namespace quince {
namespace {

TEST(Spread, SortsAndTakesTheMiddle) {
  Spread odd = spread({3, 1, 2});
  EXPECT_EQ(odd.min, 1);
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(odd.max, 3);
  EXPECT_EQ(spread({1, 2, 3, 10}).median, 2.5);
  EXPECT_EQ(spread({7}).median, 7);
}

TEST(BenchTests, AllCombinations) {
  auto tests = bench_tests({128, 0}, {32}, {1, 4}, {0, 100});
  std::vector<std::string> names;
  for (const BenchTest& test : tests) {
    names.push_back(test.name());
  }
  EXPECT_THAT(
      names,
      testing::ElementsAre("pp128", "tg32", "tg32 b4", "pp128 d100", "tg32 d100", "tg32 b4 d100"));
}

BenchOptions bench_options() {
  BenchOptions options;
  options.pool = std::make_shared<ThreadPool>(2);
  return options;
}

struct Fixture {
  std::shared_ptr<FakeModelLog> log = std::make_shared<FakeModelLog>();
  FakeModel model;
  explicit Fixture(bool can_trim = true) : model(32, log, can_trim) {}
  BenchResult run(const BenchTest& test, int repetitions = 2, int chunk = 512) {
    BenchOptions options = bench_options();
    options.repetitions = repetitions;
    options.prefill_chunk = chunk;
    return Bench(model, options).run(test);
  }
};

TEST(Bench, PromptRowsAreCounted) {
  Fixture fixture;
  BenchResult result = fixture.run({BenchTest::Kind::prompt, 100, 1, 0});
  EXPECT_EQ(result.runs.size(), 2u);
  EXPECT_EQ(fixture.log->rows_run, 3 * 100) << "one warm-up and two measurements";
  EXPECT_GT(result.tokens_per_second.min, 0);
  EXPECT_EQ(result.bytes_per_step, 0u);
}

TEST(Bench, PromptsAreCutIntoChunks) {
  Fixture fixture;
  fixture.run({BenchTest::Kind::prompt, 100, 1, 0}, 1, 32);
  EXPECT_EQ(fixture.log->largest_batch, 32);
}

TEST(Bench, DecodeFillsTheDepthOnceAndRewinds) {
  Fixture fixture;
  fixture.run({BenchTest::Kind::decode, 20, 4, 50});
  // Four sequences: depth, a warm-up of 8 steps, two measurements of 20.
  EXPECT_EQ(fixture.log->rows_run, 4 * (50 + 8 + 2 * 20));
}

TEST(Bench, CachesThatCannotRewindAreFilledAgain) {
  Fixture fixture(/* can_trim */ false);
  fixture.run({BenchTest::Kind::decode, 10, 1, 50});
  EXPECT_EQ(fixture.log->rows_run, 50 + 8 + 2 * (50 + 10));
}

TEST(Bench, BandwidthFollowsFromBytesAndSteps) {
  Fixture fixture;
  BenchOptions options = bench_options();
  options.repetitions = 1;
  options.weight_bytes_read = 1'000'000'000;
  BenchResult result = Bench(fixture.model, options).run({BenchTest::Kind::decode, 10, 2, 0});
  EXPECT_EQ(result.bytes_per_step, 1'000'000'000u);
  EXPECT_NEAR(result.gb_per_second, result.tokens_per_second.median / 2, 1e-6);
}

TEST(Bench, ContextIsChecked) {
  Fixture fixture;
  try {
    fixture.run({BenchTest::Kind::decode, 500, 1, 501});
    FAIL() << "no UserError";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("tg500 d501"));
    EXPECT_THAT(error.what(), testing::HasSubstr("1000"));
  }
  EXPECT_EQ(fixture.log->rows_run, 0);
}

TEST(Bench, CanBeStopped) {
  Fixture fixture;
  BenchOptions options = bench_options();
  int calls = 0;
  options.check = [&] {
    if (++calls == 5) {
      throw std::runtime_error("stopped");
    }
  };
  EXPECT_THROW(
      Bench(fixture.model, options).run({BenchTest::Kind::decode, 100, 1, 0}), std::runtime_error);
}

}  // namespace
}  // namespace quince
