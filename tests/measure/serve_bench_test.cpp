#include "measure/serve_bench.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/fakes.h"

namespace quince {
namespace {

Engine fake_engine(std::shared_ptr<FakeModelLog> log) {
  EngineOptions options;
  options.pool = std::make_shared<ThreadPool>(2);
  return Engine([=] { return std::make_unique<FakeModel>(32, log); }, options);
}

TEST(Percentiles, NearestRank) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) {
    values.push_back(i);
  }
  const Percentiles p = percentiles(values);
  EXPECT_EQ(p.p50, 50);
  EXPECT_EQ(p.p90, 90);
  EXPECT_EQ(p.p99, 99);
  EXPECT_EQ(p.max, 100);
  EXPECT_EQ(percentiles({3}).p50, 3);
  EXPECT_EQ(percentiles({}).max, 0);
}

TEST(ServeBench, ClientsShareTheStepsAndEveryTokenIsCounted) {
  auto log = std::make_shared<FakeModelLog>();
  Engine engine = fake_engine(log);
  ServeLoad load;
  load.requests = 40;
  load.clients = 8;
  load.prompt = {10, 20};
  load.output = {30, 30};
  const ServeResult result = run_load(engine, load);
  EXPECT_EQ(result.completed, 40);
  EXPECT_EQ(result.failed, 0);
  EXPECT_EQ(result.output_tokens, 40 * 30);
  EXPECT_GE(result.prompt_tokens, 400);
  EXPECT_LE(result.prompt_tokens, 800);
  EXPECT_LE(log->most_sequences, 8);
  EXPECT_GT(log->most_sequences, 1);
  EXPECT_GT(result.first_token.p50, 0);
  EXPECT_GE(result.request.max, result.first_token.max);
  EXPECT_GT(result.output_per_second(), 0);
}

TEST(ServeBench, ArrivalsKeepTheirRate) {
  Engine engine = fake_engine(std::make_shared<FakeModelLog>());
  ServeLoad load;
  load.requests = 30;
  load.clients = 30;
  load.rate = 100;
  load.prompt = {4, 4};
  load.output = {2, 2};
  const ServeResult result = run_load(engine, load);
  EXPECT_EQ(result.completed, 30);
  EXPECT_GT(result.seconds, 0.12);  // 0.3 on average
}

TEST(ServeBench, FailuresAreCountedAndTheFirstIsNamed) {
  auto log = std::make_shared<FakeModelLog>();
  log->nan_at_row = 0;
  Engine engine = fake_engine(log);
  ServeLoad load;
  load.requests = 4;
  load.clients = 2;
  load.prompt = {4, 4};
  load.output = {2, 2};
  const ServeResult result = run_load(engine, load);
  EXPECT_EQ(result.failed, 4);
  EXPECT_NE(result.first_error.find("no number"), std::string::npos);
}

TEST(ServeBench, LengthsMustFitAndItCanBeStopped) {
  Engine engine = fake_engine(std::make_shared<FakeModelLog>());
  ServeLoad load;
  load.prompt = {10, 900};
  load.output = {200, 200};
  EXPECT_THROW(run_load(engine, load), UserError);
  load.prompt = {10, 10};
  load.requests = 1000;
  load.check = [] { throw std::runtime_error("stopped"); };
  EXPECT_THROW(run_load(engine, load), std::runtime_error);
}

}  // namespace
}  // namespace quince
