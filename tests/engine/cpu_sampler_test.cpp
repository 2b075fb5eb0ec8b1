#include "engine/sampling/cpu_sampler.h"

#include <cmath>
#include <limits>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/requests.h"

namespace quince {
namespace {

using test::unfiltered;

std::map<int32_t, double> frequencies(
    const SamplingParams& params, const std::vector<float>& logits, int n) {
  CpuSampler sampler(params, 7);
  std::map<int32_t, double> counts;
  for (int i = 0; i < n; ++i) {
    counts[sampler.sample(logits).id] += 1.0 / n;
  }
  return counts;
}

std::vector<double> softmax(const std::vector<float>& logits, double temperature) {
  double sum = 0;
  std::vector<double> p;
  for (const float x : logits) {
    p.push_back(std::exp(x / temperature));
    sum += p.back();
  }
  for (double& x : p) {
    x /= sum;
  }
  return p;
}

TEST(CpuSampler, FollowsTheDistributionAtSeveralTemperatures) {
  const std::vector<float> logits = {2, 1, 0, -1, -2};
  for (const float t : {0.5f, 1.0f, 2.0f}) {
    SamplingParams p = unfiltered();
    p.temperature = t;
    const auto seen = frequencies(p, logits, 40000);
    const auto want = softmax(logits, t);
    for (int i = 0; i < 5; ++i) {
      const double got = seen.contains(i) ? seen.at(i) : 0.0;
      EXPECT_NEAR(got, want[i], 0.012) << "token " << i << " at temperature " << t;
    }
  }
}

TEST(CpuSampler, TemperatureExtremesStayFinite) {
  const std::vector<float> logits = {2, 1, 0, -1, -2};
  SamplingParams p = unfiltered();
  p.temperature = 1e-9f;
  EXPECT_DOUBLE_EQ(frequencies(p, logits, 100)[0], 1.0);
  p.temperature = 1e9f;
  for (const auto& [id, share] : frequencies(p, logits, 20000)) {
    EXPECT_NEAR(share, 0.2, 0.015) << id;
  }
  p.temperature = 0.0f;
  EXPECT_DOUBLE_EQ(frequencies(p, logits, 10)[0], 1.0);
}

TEST(CpuSampler, GreedyTakesTheFirstOfEqualsWhereverItLies) {
  SamplingParams p = unfiltered();
  p.temperature = 0.0f;
  std::vector<float> logits(1000, -3.0f);
  for (const int at : {0, 63, 64, 65, 511, 999}) {
    std::vector<float> row = logits;
    row[at] = 5.0f;
    row[999] = 5.0f;
    EXPECT_EQ(CpuSampler(p, 1).sample(row).id, at);
  }
}

TEST(CpuSampler, TopKKeepsExactlyTheKBest) {
  std::mt19937 random(3);
  std::vector<float> logits(5000);
  std::vector<std::pair<float, int32_t>> order;
  for (int i = 0; i < 5000; ++i) {
    logits[i] = std::normal_distribution<float>()(random);
    order.emplace_back(logits[i], i);
  }
  std::sort(order.rbegin(), order.rend());
  SamplingParams p = unfiltered();
  p.top_k = 10;
  p.temperature = 100.0f;  // nearly uniform: all ten must come, and nothing else
  const auto seen = frequencies(p, logits, 5000);
  EXPECT_EQ(seen.size(), 10u);
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(seen.contains(order[i].second));
  }
}

TEST(CpuSampler, TopPAndMinPCutWhereTheyShould) {
  // Probabilities 0.5 0.25 0.15 0.1.
  const std::vector<float> logits = {
      std::log(0.5f), std::log(0.25f), std::log(0.15f), std::log(0.1f)};
  SamplingParams p = unfiltered();
  p.top_p = 0.7f;
  EXPECT_EQ(frequencies(p, logits, 2000).size(), 2u);
  p.top_p = 0.76f;
  EXPECT_EQ(frequencies(p, logits, 2000).size(), 3u);
  p.top_p = 0.0f;
  EXPECT_EQ(frequencies(p, logits, 200).size(), 1u);
  p.top_p = 1.0f;
  p.min_p = 0.4f;
  EXPECT_EQ(frequencies(p, logits, 2000).size(), 2u);
  p.min_p = 1.0f;
  EXPECT_EQ(frequencies(p, logits, 200).size(), 1u);
}

TEST(CpuSampler, PenaltyAndBias) {
  const std::vector<float> logits = {2.0f, 1.5f, -1.0f};
  SamplingParams p = unfiltered();
  p.temperature = 0.0f;
  p.repetition_penalty = 2.0f;
  CpuSampler sampler(p, 1);
  EXPECT_EQ(sampler.sample(logits).id, 0);
  EXPECT_EQ(sampler.sample(logits).id, 1);  // 2.0 / 2 < 1.5
  EXPECT_EQ(sampler.sample(logits).id, 0);  // 1.0 > 0.75
  p.repeat_last_n = 1;
  CpuSampler narrow(p, 1);
  const std::vector<int32_t> prompt = {0, 2};
  narrow.observe(prompt);  // only token 2 is in the window
  EXPECT_EQ(narrow.sample(logits).id, 0);
  SamplingParams biased = unfiltered();
  biased.temperature = 0.0f;
  biased.logit_bias = {{2, 100.0f}, {-5, 1.0f}, {99, 1.0f}};
  EXPECT_EQ(CpuSampler(biased, 1).sample(logits).id, 2);
  biased.logit_bias = {{0, -std::numeric_limits<float>::infinity()}};
  EXPECT_EQ(CpuSampler(biased, 1).sample(logits).id, 1);
}

TEST(CpuSampler, SeedDecidesEverything) {
  const std::vector<float> logits(100, 0.0f);
  const auto run = [&](uint64_t seed) {
    CpuSampler sampler(unfiltered(), seed);
    std::vector<int32_t> ids;
    for (int i = 0; i < 20; ++i) {
      ids.push_back(sampler.sample(logits).id);
    }
    return ids;
  };
  EXPECT_EQ(run(5), run(5));
  EXPECT_NE(run(5), run(6));
}

TEST(CpuSampler, LogprobIsOfTheUnchangedRow) {
  const std::vector<float> logits = {2, 1, 0};
  SamplingParams p = unfiltered();
  p.temperature = 0.0f;
  p.logit_bias = {{1, 50.0f}};
  p.logprobs = true;
  const SampledToken token = CpuSampler(p, 1).sample(logits);
  EXPECT_EQ(token.id, 1);
  EXPECT_NEAR(token.logprob, std::log(softmax(logits, 1.0)[1]), 1e-5);
}

TEST(CpuSampler, MaskComesBeforeEverythingElse) {
  std::vector<float> logits(100, 0.0f);
  logits[3] = 9.0f;
  logits[70] = 8.0f;
  SamplingParams p = unfiltered();
  p.temperature = 0.0f;
  p.logit_bias = {{3, 1000.0f}, {99, 500.0f}};
  const std::vector<uint32_t> mask = {~8u, 0u, 1u << 6 | 1u << 7};  // not 3; 70, 71 and no further
  EXPECT_EQ(CpuSampler(p, 1).sample(logits, &mask).id, 70);
  p = unfiltered();
  p.temperature = 100.0f;
  CpuSampler sampler(p, 1);
  std::map<int32_t, int> seen;
  for (int i = 0; i < 5000; ++i) {
    ++seen[sampler.sample(logits, &mask).id];
  }
  EXPECT_EQ(seen.size(), 33u);  // 31 of the first word
  EXPECT_FALSE(seen.contains(3));
  EXPECT_TRUE(seen.contains(71));
  EXPECT_EQ(CpuSampler(unfiltered(), 4).sample(logits).id, [&] {
    const std::vector<uint32_t> all(4, ~0u);
    return CpuSampler(unfiltered(), 4).sample(logits, &all).id;
  }());
}

TEST(CpuSampler, NothingLeftIsNotTheModelsFault) {
  const std::vector<float> logits(40, 0.0f);
  const std::vector<uint32_t> none = {};
  try {
    CpuSampler(unfiltered(), 1).sample(logits, &none);
    FAIL() << "an empty mask chose a token";
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("no token is left"), std::string::npos) << e.what();
  }
}

TEST(CpuSampler, RowsWithoutAFiniteLogitAreAnError) {
  const std::vector<float> logits(3, std::numeric_limits<float>::quiet_NaN());
  EXPECT_THROW(CpuSampler(unfiltered(), 1).sample(logits), UserError);
}

TEST(SamplingParams, BadValuesAreNamed) {
  const auto message = [](auto change) {
    SamplingParams p;
    change(p);
    try {
      p.check();
    } catch (const UserError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_NE(
      message([](auto& p) { p.temperature = -1; }).find("temperature is -1"), std::string::npos);
  EXPECT_NE(message([](auto& p) { p.temperature = NAN; }).find("temperature"), std::string::npos);
  EXPECT_NE(message([](auto& p) { p.top_p = 1.5; }).find("top_p is 1.5"), std::string::npos);
  EXPECT_NE(message([](auto& p) { p.min_p = -0.1f; }).find("min_p"), std::string::npos);
  EXPECT_NE(message([](auto& p) { p.top_k = -1; }).find("top_k is -1"), std::string::npos);
  EXPECT_NE(
      message([](auto& p) { p.max_tokens = -2; }).find("max_tokens is -2"), std::string::npos);
  EXPECT_NE(
      message([](auto& p) { p.repetition_penalty = 0; }).find("repetition_penalty"),
      std::string::npos);
  EXPECT_EQ(message([](auto&) {}), "");
}

}  // namespace
}  // namespace quince
