// The samplers as arrays: the one around CpuSampler and the one of MLX operations, which must
// agree.
#include "engine/sampling/sampler.h"

#include <cmath>
#include <random>
#include <set>

#include <gtest/gtest.h>
#include <mlx/ops.h>
#include <mlx/transforms.h>

#include "base/error.h"

namespace quince {
namespace {

namespace mx = mlx::core;

const mx::Device kBoth[] = {mx::Device(mx::Device::cpu), mx::Device(mx::Device::gpu)};

SamplingParams greedy() {
  SamplingParams params;
  params.temperature = 0.0f;
  return params;
}

// What an array holds once it is evaluated. Not inlined: tests/sanitizers/thread.txt names it.
template <typename T>
[[gnu::noinline]] std::vector<T> read_back(mx::array x) {
  x.eval();
  return {x.data<T>(), x.data<T>() + x.size()};
}

SampledRows sample(Sampler& sampler, const mx::array& logits, TokenMask mask = nullptr) {
  return sample_rows(logits, std::vector<SampleRow>{{&sampler, std::move(mask)}}, nullptr);
}

TEST(Sampler, ComposedAgreesWithNativeOnGreedyAndRespectsFilters) {
  const mx::array logits = mx::array({2.0f, 1.5f, 0.0f, -1.0f}, {1, 4});
  for (const auto device : kBoth) {
    SamplingParams params = greedy();
    params.repetition_penalty = 2.0f;
    params.logprobs = true;
    auto sampler = make_sampler(params, {}, device);
    SampledRows first = sample(*sampler, logits);
    EXPECT_EQ(first.ids.item<int32_t>(), 0);
    EXPECT_NEAR(first.logprobs.item<float>(), -0.58314f, 1e-4);
    EXPECT_EQ(sample(*sampler, logits).ids.item<int32_t>(), 1);
    SamplingParams narrow;
    narrow.temperature = 50.0f;
    narrow.top_k = 2;
    narrow.top_p = 1.0f;
    narrow.min_p = 0.0f;
    auto two = make_sampler(narrow, {}, device);
    std::set<int32_t> seen;
    for (int i = 0; i < 50; ++i) {
      seen.insert(sample(*two, logits).ids.item<int32_t>());
    }
    EXPECT_EQ(seen, (std::set<int32_t>{0, 1}));
    narrow.top_k = 0;
    narrow.top_p = 0.6f;
    auto nucleus = make_sampler(narrow, {}, device);
    seen.clear();
    for (int i = 0; i < 50; ++i) {
      seen.insert(sample(*nucleus, logits).ids.item<int32_t>());
    }
    EXPECT_EQ(seen, (std::set<int32_t>{0, 1}));
  }
}

// A mask belongs to one row of one step.
TEST(Sampler, MasksHoldForTheirRowAndStep) {
  std::vector<float> values(2 * 70, 0.0f);
  values[5] = values[70 + 5] = 3.0f;
  values[69] = values[70 + 69] = 2.0f;
  const mx::array logits = mx::array(values.data(), {2, 70}, mx::float32);
  const auto mask = std::make_shared<const std::vector<uint32_t>>(
      std::vector<uint32_t>{~(1u << 5), ~0u, 1u << 5});
  const auto shorter = std::make_shared<const std::vector<uint32_t>>(1, 1u << 9);
  for (const auto device : kBoth) {
    SamplingParams params = greedy();
    params.logit_bias = {{5, 100.0f}};
    auto one = make_sampler(params, {}, device);
    auto two = make_sampler(params, {}, device);
    const auto step = [&](TokenMask first, TokenMask second) {
      mx::array ids =
          sample_rows(
              logits,
              std::vector<SampleRow>{{one.get(), std::move(first)}, {two.get(), std::move(second)}},
              std::make_shared<ThreadPool>(2))
              .ids;
      const auto read = read_back<int32_t>(ids);
      return std::pair(read[0], read[1]);
    };
    EXPECT_EQ(step(mask, nullptr), std::pair(69, 5));
    EXPECT_EQ(step(nullptr, mask), std::pair(5, 69));
    EXPECT_EQ(step(shorter, mask), std::pair(9, 69));
  }
}

TEST(Sampler, MaskThatAllowsNothingFailsItsOwnRow) {
  const mx::array logits = mx::zeros({1, 40});
  auto sampler = make_sampler(greedy(), {}, mx::Device::cpu);
  mx::eval({sample(*sampler, logits, std::make_shared<const std::vector<uint32_t>>()).ids});
  EXPECT_THROW(sampler->check(1), UserError);
}

std::vector<float> random_row(std::mt19937& random, int size) {
  std::vector<float> row(size);
  std::normal_distribution<float> normal(0.0f, 1.5f);
  std::generate(row.begin(), row.end(), [&] { return normal(random); });
  return row;
}

SamplingParams random_params(std::mt19937& random) {
  const auto part = [&](float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(random);
  };
  SamplingParams p;
  p.temperature = part(0.3f, 1.5f);
  p.top_k = random() % 2 == 0 ? 0 : 3 + static_cast<int>(random() % 20);
  p.top_p = part(0.5f, 1);
  p.min_p = part(0, 0.1f);
  p.typical_p = random() % 2 == 0 ? 1 : part(0.5f, 1);
  p.top_n_sigma = random() % 2 == 0 ? -1 : part(0.8f, 2);
  p.xtc_probability = random() % 2 == 0 ? 0 : part(0, 1);
  p.xtc_threshold = 0.08f;
  p.repetition_penalty = part(0.8f, 1.5f);
  p.presence_penalty = part(-1, 1);
  p.frequency_penalty = part(-1, 1);
  p.dynatemp_range = random() % 2 == 0 ? 0 : part(0, 0.5f);
  p.mirostat = static_cast<int>(random() % 3);
  p.min_keep = static_cast<int>(random() % 4);
  p.bad_words = {{3}, {5, 6}, {1, 1, 2}};
  p.end_tokens = {0};
  p.stop_tokens = {8};
  p.min_tokens = 3;
  p.ignore_eos = random() % 2 == 0;
  p.logit_bias = {{11, 1.0f}, {12, -INFINITY}};
  return p;
}

// One row samples what it would sample alone, whatever stands beside it and wherever it stands.
TEST(Sampler, ARequestDrawsTheSameInAnyCompany) {
  std::mt19937 random(41);
  constexpr int kSize = 200;
  constexpr int kSteps = 12;
  const auto pool = std::make_shared<ThreadPool>(2);
  for (const auto device : kBoth) {
    const int requests = device == mx::Device::cpu ? 20 : 5;
    std::vector<SamplingParams> params;
    std::vector<std::vector<std::vector<float>>> rows(requests);
    for (int i = 0; i < requests; ++i) {
      params.push_back(random_params(random));
      params.back().seed = 7;  // the same: rows must not share draws either
      for (int n = 0; n < kSteps; ++n) {
        rows[i].push_back(random_row(random, kSize));
      }
    }
    const auto make = [&](int i) { return make_sampler(params[i], std::vector{1, 2}, device); };
    std::vector<std::vector<int32_t>> alone(requests);
    std::vector<std::unique_ptr<Sampler>> together;
    for (int i = 0; i < requests; ++i) {
      auto sampler = make(i);
      for (const auto& row : rows[i]) {
        const mx::array logits = mx::array(row.data(), {1, kSize}, mx::float32);
        alone[i].push_back(sample(*sampler, logits).ids.item<int32_t>());
      }
      together.push_back(make(i));
    }
    // Some take part in a step, others wait; each takes its own nth row.
    std::vector<std::vector<int32_t>> got(requests);
    for (bool more = true; more;) {
      more = false;
      std::vector<int> order;
      std::vector<float> values;
      std::vector<SampleRow> step;
      for (int i = 0; i < requests; ++i) {
        const bool left = got[i].size() < kSteps;
        more = more || left;
        if (left && random() % 3 != 0) {
          order.push_back(i);
        }
      }
      std::shuffle(order.begin(), order.end(), random);
      for (const int i : order) {
        const auto& row = rows[i][got[i].size()];
        values.insert(values.end(), row.begin(), row.end());
        step.push_back({together[i].get(), nullptr});
      }
      if (order.empty()) {
        continue;
      }
      const int count = static_cast<int>(order.size());
      mx::array ids =
          sample_rows(mx::array(values.data(), {count, kSize}, mx::float32), step, pool).ids;
      const auto read = read_back<int32_t>(ids);
      for (int n = 0; n < count; ++n) {
        got[order[n]].push_back(read[n]);
      }
    }
    EXPECT_EQ(got, alone);
  }
}

// Both kinds keep the same tokens after the same history: all tokens of the one come from the
// other.
TEST(Sampler, ComposedChoosesAmongTheSameTokensAsNative) {
  std::mt19937 random(42);
  constexpr int kSize = 60;
  for (int round = 0; round < 6; ++round) {
    SamplingParams params = random_params(random);
    params.mirostat = 0;
    params.xtc_probability = round % 2 == 0 ? 1.0f : 0.0f;
    params.temperature = 3.0f;  // after all else, so that every token that is left comes
    params.dynatemp_range = 0.0f;
    const std::vector<int32_t> output = {5, 1, 1};  // 2 and 6 would complete bad words
    const auto row = random_row(random, kSize);
    std::set<int32_t> seen[2];
    for (int d = 0; d < 2; ++d) {
      const int draws = d == 0 ? 1500 : 200;
      for (int seed = 0; seed < draws; ++seed) {
        params.seed = static_cast<uint64_t>(seed);
        auto sampler = make_sampler(params, std::vector{1, 2}, kBoth[d]);
        for (const int32_t token : output) {
          std::vector<float> only(kSize, -INFINITY);
          only[token] = 0;
          sample(*sampler, mx::array(only.data(), {1, kSize}, mx::float32)).ids.item<int32_t>();
        }
        seen[d].insert(
            sample(*sampler, mx::array(row.data(), {1, kSize}, mx::float32)).ids.item<int32_t>());
      }
    }
    for (const int32_t id : seen[1]) {
      EXPECT_TRUE(seen[0].contains(id)) << "token " << id << " in round " << round;
    }
    EXPECT_GE(seen[1].size() * 10, seen[0].size() * 7) << round;
    for (const int32_t never : {3, 2, 12}) {
      EXPECT_FALSE(seen[0].contains(never) || seen[1].contains(never)) << never;
    }
  }
}

// Greedy after a long history: no draw hides a difference.
TEST(Sampler, ComposedPenaltiesAreNatives) {
  std::mt19937 random(43);
  for (int round = 0; round < 10; ++round) {
    SamplingParams params = random_params(random);
    params.temperature = 0.0f;
    params.typical_p = 1.0f;
    params.xtc_probability = 0.0f;
    params.dynatemp_range = 0.0f;
    params.repeat_last_n = static_cast<int>(random() % 8) - 1;
    auto native = make_sampler(params, std::vector{4, 2, 9, 9}, kBoth[0]);
    auto composed = make_sampler(params, std::vector{4, 2, 9, 9}, kBoth[1]);
    for (int n = 0; n < 40; ++n) {
      const auto row = random_row(random, 16);
      const mx::array logits = mx::array(row.data(), {1, 16}, mx::float32);
      ASSERT_EQ(
          sample(*native, logits).ids.item<int32_t>(),
          sample(*composed, logits).ids.item<int32_t>())
          << "round " << round << ", token " << n;
    }
  }
}

TEST(Sampler, ComposedMirostatComesToItsTarget) {
  std::mt19937 random(44);
  for (const int version : {1, 2}) {
    SamplingParams params;
    params.mirostat = version;
    params.mirostat_tau = 3.0f;
    params.seed = 5;
    double sum[2] = {0, 0};
    for (int d = 0; d < 2; ++d) {
      auto sampler = make_sampler(params, {}, kBoth[d]);
      for (int i = 0; i < 400; ++i) {
        std::vector<float> row(300);
        for (size_t n = 0; n < row.size(); ++n) {
          row[n] = static_cast<float>(-1.3 * std::log(static_cast<double>(n + 1)));
        }
        const int32_t id =
            sample(*sampler, mx::array(row.data(), {1, 300}, mx::float32)).ids.item<int32_t>();
        sum[d] += std::log2(static_cast<double>(id + 1)) * 1.3 / 400;
      }
    }
    EXPECT_NEAR(sum[0], sum[1], 0.3) << version;
  }
}

TEST(Sampler, TopLogprobsOfRowsThatAskForDifferentNumbers) {
  std::mt19937 random(45);
  const auto values = random_row(random, 3 * 50);
  const mx::array logits = mx::array(values.data(), {3, 50}, mx::float32);
  for (const auto device : kBoth) {
    std::vector<std::unique_ptr<Sampler>> samplers;
    std::vector<SampleRow> rows;
    for (const int top : {0, 25, 3}) {
      SamplingParams params = greedy();
      params.top_logprobs = top;
      samplers.push_back(make_sampler(params, {}, device));
      rows.push_back({samplers.back().get(), nullptr});
    }
    SampledRows sampled = sample_rows(logits, rows, std::make_shared<ThreadPool>(2));
    ASSERT_TRUE(sampled.top_ids && sampled.top_logprobs);
    ASSERT_EQ(sampled.top_ids->shape(), (mx::Shape{3, 25}));
    mx::eval({sampled.ids, sampled.logprobs, *sampled.top_ids, *sampled.top_logprobs});
    const auto ids = read_back<int32_t>(*sampled.top_ids);
    const auto logprobs = read_back<float>(*sampled.top_logprobs);
    const auto chosen = read_back<int32_t>(sampled.ids);
    const auto chosen_logprobs = read_back<float>(sampled.logprobs);
    EXPECT_TRUE(std::isnan(chosen_logprobs[0]));
    for (int i = 0; i < 3; ++i) {
      const float* row = values.data() + i * 50;
      double sum = 0;
      for (int n = 0; n < 50; ++n) {
        sum += std::exp(row[n]);
      }
      const int asked = i == 0 ? 0 : i == 1 ? 25 : 3;
      for (int n = 0; n < 25; ++n) {
        const int32_t id = ids[i * 25 + n];
        if (n >= asked) {
          EXPECT_EQ(id, kNoToken);
          continue;
        }
        EXPECT_EQ(std::count_if(row, row + 50, [&](float x) { return x > row[id]; }), n);
        EXPECT_NEAR(logprobs[i * 25 + n], row[id] - std::log(sum), 1e-4);
      }
      if (asked > 0) {
        EXPECT_EQ(ids[i * 25], chosen[i]);
        EXPECT_EQ(logprobs[i * 25], chosen_logprobs[i]);
      }
    }
  }
}

TEST(Sampler, GivenTokensAreReportedOnAndAdvanceNothing) {
  std::mt19937 random(46);
  const auto values = random_row(random, 4 * 30);
  const mx::array logits = mx::array(values.data(), {4, 30}, mx::float32);
  for (const auto device : kBoth) {
    SamplingParams params;
    params.temperature = 1.0f;
    params.seed = 4;
    params.top_logprobs = 2;
    auto sampler = make_sampler(params, {}, device);
    auto fresh = make_sampler(params, {}, device);
    std::vector<SampleRow> rows;
    for (const int32_t token : {7, 0, 29, 7}) {
      rows.push_back({sampler.get(), nullptr, token});
    }
    SampledRows given = sample_rows(logits, rows, std::make_shared<ThreadPool>(2));
    mx::eval({given.ids, given.logprobs, *given.top_ids});
    for (int i = 0; i < 4; ++i) {
      const float* row = values.data() + i * 30;
      double sum = 0;
      for (int n = 0; n < 30; ++n) {
        sum += std::exp(row[n]);
      }
      EXPECT_EQ(given.ids.data<int32_t>()[i], rows[i].given);
      EXPECT_NEAR(given.logprobs.data<float>()[i], row[rows[i].given] - std::log(sum), 1e-4);
      EXPECT_EQ(given.top_ids->data<int32_t>()[i * 2], std::max_element(row, row + 30) - row);
    }
    const mx::array one = mx::slice(logits, {0, 0}, {1, 30});
    EXPECT_EQ(sample(*sampler, one).ids.item<int32_t>(), sample(*fresh, one).ids.item<int32_t>());
  }
}

// Rows behind drafted tokens give what steps one by one would have given, up to the first that is
// not the drafted one; and the sampler goes on from there.
TEST(Sampler, DraftedRowsAreWhatStepsWouldHaveGiven) {
  constexpr int kVocabulary = 40;
  constexpr int kSteps = 7;
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(kSteps) * kVocabulary);
  for (float& value : values) {
    value = 2.0f * normal(random);
  }
  const auto rows_of = [&](int first, int count) {
    return mx::array(
        values.data() + static_cast<ptrdiff_t>(first) * kVocabulary,
        {count, kVocabulary},
        mx::float32);
  };
  SamplingParams params;
  params.temperature = 1.0f;
  params.seed = 3;
  params.repetition_penalty = 1.5f;
  params.frequency_penalty = 0.5f;
  const std::vector<int32_t> prompt = {1, 2, 3};
  const auto pool = std::make_shared<ThreadPool>(2);
  for (const auto device : kBoth) {
    const auto alone = make_sampler(params, prompt, device);
    std::vector<int32_t> want;
    for (int i = 0; i < kSteps; ++i) {
      want.push_back(sample(*alone, rows_of(i, 1)).ids.item<int32_t>());
    }
    const auto drafted = make_sampler(params, prompt, device);
    const auto step = [&](int first, std::vector<int32_t> drafts) {
      const auto count = static_cast<int>(drafts.size()) + 1;
      std::vector<SampleRow> rows(drafts.size() + 1, SampleRow{drafted.get(), nullptr});
      for (size_t i = 0; i < drafts.size(); ++i) {
        rows[i].draft = drafts[i];
      }
      return read_back<int32_t>(sample_rows(rows_of(first, count), rows, pool).ids);
    };
    const int32_t wrong = (want[1] + 1) % kVocabulary;
    const auto some = step(0, {want[0], wrong, want[2]});
    EXPECT_EQ(some[0], want[0]);
    EXPECT_EQ(some[1], want[1]);
    drafted->settle(1);
    EXPECT_EQ(step(2, {}), (std::vector<int32_t>{want[2]}));
    const auto all = step(3, {want[3], want[4]});
    EXPECT_EQ(all, (std::vector<int32_t>{want[3], want[4], want[5]}));
    drafted->settle(2);
    EXPECT_EQ(step(6, {}), (std::vector<int32_t>{want[6]}));
  }
}

TEST(Sampler, ComposedRefusesDryByName) {
  SamplingParams params;
  params.dry_multiplier = 0.8f;
  try {
    make_sampler(params, {}, mx::Device::gpu);
    FAIL();
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("dry_multiplier is 0.8"), std::string::npos) << e.what();
  }
  EXPECT_NO_THROW(make_sampler(params, {}, mx::Device::cpu));
}

}  // namespace
}  // namespace quince
