// Every filter alone against its definition: on random rows, on lists that other filters have left,
// and as MLX operations.
#include "engine/sampling/filters.h"

#include <random>

#include <gtest/gtest.h>
#include <mlx/ops.h>
#include <mlx/transforms.h>

#include "engine/sampling/composed_filters.h"
#include "engine/sampling/mirostat.h"
#include "engine/sampling_reference.h"

namespace quince {
namespace {

namespace mx = mlx::core;

std::vector<float> random_row(std::mt19937& random, int size) {
  std::vector<float> row(size);
  const float spread = std::uniform_real_distribution<float>(0.2f, 4.0f)(random);
  std::normal_distribution<float> normal(0.0f, spread);
  std::generate(row.begin(), row.end(), [&] { return normal(random); });
  for (int i = 0; i < size / 10; ++i) {
    row[random() % size] = -INFINITY;
  }
  return row;
}

float part(std::mt19937& random, float low, float high) {
  return std::uniform_real_distribution<float>(low, high)(random);
}

std::map<int32_t, float> contents(Candidates& candidates) {
  std::map<int32_t, float> out;
  for (const Candidate& c : candidates.list()) {
    EXPECT_TRUE(out.emplace(c.id, c.logit).second) << "token " << c.id << " twice";
  }
  return out;
}

std::map<int32_t, float> contents(mx::array row) {
  mx::eval({row});
  std::map<int32_t, float> out;
  for (int i = 0; i < row.shape(0); ++i) {
    if (row.data<float>()[i] > -INFINITY) {
      out[i] = row.data<float>()[i];
    }
  }
  return out;
}

void expect_same(
    const std::map<int32_t, float>& got, const reference::Choice& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (const auto& [id, x] : want) {
    ASSERT_TRUE(got.contains(id)) << what << ": token " << id;
    ASSERT_NEAR(got.at(id), x, 1e-4 * (1 + std::abs(x))) << what << ": token " << id;
  }
}

struct Filter {
  std::string name;
  std::function<void(Candidates&)> native;
  std::function<mx::array(const mx::array&)> composed;
  std::function<reference::Choice(const reference::Choice&)> wanted;
};

Filter random_filter(std::mt19937& random, int kind) {
  const int min_keep = random() % 2 == 0 ? 0 : static_cast<int>(random() % 12);
  const auto least = static_cast<size_t>(min_keep);
  const auto named = [&](const char* name, float value) {
    return std::string(name) + " " + std::to_string(value) + " min_keep " +
           std::to_string(min_keep);
  };
  switch (kind) {
    case 0: {
      const int k = 1 + static_cast<int>(random() % 60);
      return {
          named("top_k", static_cast<float>(k)),
          [=](auto& c) { keep_top_k(c, k); },
          [=](auto& row) { return composed::top_k(row, k); },
          [=](auto& c) { return reference::top_k(c, k); }};
    }
    case 1: {
      const float p = part(random, 0, 1);
      return {
          named("top_p", p),
          [=](auto& c) { keep_top_p(c, p, least); },
          [=](auto& row) { return composed::top_p(row, p, min_keep); },
          [=](auto& c) { return reference::top_p(c, p, least); }};
    }
    case 2: {
      const float p = part(random, 0.001f, 1);
      return {
          named("min_p", p),
          [=](auto& c) { keep_min_p(c, p, least); },
          [=](auto& row) { return composed::min_p(row, p, min_keep); },
          [=](auto& c) { return reference::min_p(c, p, least); }};
    }
    case 3: {
      const float p = part(random, 0, 1);
      return {
          named("typical_p", p),
          [=](auto& c) { keep_typical(c, p, least); },
          [=](auto& row) { return composed::typical(row, p, min_keep); },
          [=](auto& c) { return reference::typical_p(c, p, least); }};
    }
    case 4: {
      const float n = part(random, 0.1f, 3);
      return {
          named("top_n_sigma", n),
          [=](auto& c) { keep_top_n_sigma(c, n); },
          [=](auto& row) { return composed::top_n_sigma(row, n); },
          [=](auto& c) { return reference::top_n_sigma(c, n); }};
    }
    case 5: {
      const float threshold = part(random, 0, 0.3f);
      return {
          named("xtc", threshold),
          [=](auto& c) { exclude_top_choices(c, threshold, least); },
          [=](auto& row) { return composed::exclude_top_choices(row, threshold, min_keep); },
          [=](auto& c) { return reference::xtc(c, threshold, least); }};
    }
    default: {
      SamplingParams params;
      params.temperature = random() % 6 == 0 ? 0.0f : part(random, 0.1f, 2);
      params.dynatemp_range = random() % 2 == 0 ? 0.0f : part(random, 0, 1.5f);
      params.dynatemp_exponent = part(random, 0.2f, 3);
      const float t = params.temperature;
      const float range = params.dynatemp_range;
      const float exponent = params.dynatemp_exponent;
      return {
          named("temperature", t) + " range " + std::to_string(range),
          [=](auto& c) { apply_temperature(c, t, range, exponent); },
          [=](auto& row) { return composed::temperature(row, t, range, exponent); },
          [=](auto& c) { return reference::temperature(c, params); }};
    }
  }
}

TEST(Filters, EachAloneKeepsWhatItsDefinitionSays) {
  std::mt19937 random(11);
  for (int kind = 0; kind < 7; ++kind) {
    for (int round = 0; round < 150; ++round) {
      const int size = round % 10 == 0 ? 1 + static_cast<int>(random() % 3)
                                       : 2 + static_cast<int>(random() % 2000);
      const std::vector<float> row = random_row(random, size);
      if (reference::choice_of(row).empty()) {
        continue;
      }
      const Filter filter = random_filter(random, kind);
      Candidates candidates;
      candidates.start(row);
      filter.native(candidates);
      const auto want = filter.wanted(reference::choice_of(row));
      ASSERT_NO_FATAL_FAILURE(expect_same(contents(candidates), want, filter.name));
      if (round % 3 == 0) {
        const mx::array array = mx::array(row.data(), {size}, mx::float32);
        ASSERT_NO_FATAL_FAILURE(
            expect_same(contents(filter.composed(array)), want, "composed " + filter.name));
      }
    }
  }
}

TEST(Filters, InAnyOrderOneAfterAnother) {
  std::mt19937 random(12);
  for (int round = 0; round < 400; ++round) {
    const int size = 20 + static_cast<int>(random() % 500);
    const std::vector<float> row = random_row(random, size);
    Candidates candidates;
    candidates.start(row);
    reference::Choice want = reference::choice_of(row);
    mx::array array = mx::array(row.data(), {size}, mx::float32);
    std::string names;
    for (int i = 0; i < 4; ++i) {
      const Filter filter = random_filter(random, static_cast<int>(random() % 7));
      names += filter.name + ", ";
      filter.native(candidates);
      array = filter.composed(array);
      want = filter.wanted(want);
      ASSERT_NO_FATAL_FAILURE(expect_same(contents(candidates), want, names));
    }
    if (round % 4 == 0) {
      ASSERT_NO_FATAL_FAILURE(expect_same(contents(array), want, "composed " + names));
    }
  }
}

TEST(Filters, RowsWithoutANumberStayAsTheyAre) {
  std::mt19937 random(13);
  for (const float x : {NAN, -INFINITY, INFINITY}) {
    const std::vector<float> row(300, x);
    for (int kind = 0; kind < 7; ++kind) {
      Candidates candidates;
      candidates.start(row);
      random_filter(random, kind).native(candidates);
      EXPECT_FALSE(std::isfinite(candidates.highest()));
    }
  }
}

TEST(Mirostat, VersionTwoKeepsSurprisesUpToMu) {
  std::mt19937 random(14);
  for (int round = 0; round < 200; ++round) {
    const std::vector<float> row = random_row(random, 200);
    SamplingParams params;
    params.mirostat = 2;
    params.mirostat_tau = part(random, 0, 5);
    Candidates candidates;
    candidates.start(row);
    Mirostat(params).keep(candidates, row.size());
    const double mu = 2.0 * params.mirostat_tau;
    const reference::Choice all = reference::choice_of(row);
    reference::Choice want;
    for (const auto& [id, p] : reference::probabilities(all)) {
      if (-std::log2(p) <= mu) {
        want[id] = all.at(id);
      }
    }
    want = want.empty() ? reference::top_k(all, 1) : want;
    ASSERT_NO_FATAL_FAILURE(expect_same(contents(candidates), want, "mirostat 2"));
    const mx::array array = composed::mirostat(
        mx::array(row.data(), {200}, mx::float32), mx::array(static_cast<float>(mu)), 2);
    ASSERT_NO_FATAL_FAILURE(expect_same(contents(array), want, "composed mirostat 2"));
  }
}

// A row that follows Zipf's law: the exponent is found again, and k is what the formula gives.
TEST(Mirostat, VersionOneKeepsTheTokensThatZipfsLawSays) {
  for (const double s : {1.1, 1.5, 2.0}) {
    std::vector<float> row(5000);
    for (size_t i = 0; i < row.size(); ++i) {
      row[(i * 7) % row.size()] = static_cast<float>(-s * std::log(static_cast<double>(i + 1)));
    }
    for (const double tau : {1.0, 3.0}) {
      const double mu = 2 * tau;
      const double k = std::pow((s - 1) * std::pow(2, mu) / (1 - std::pow(5000.0, 1 - s)), 1 / s);
      SamplingParams params;
      params.mirostat = 1;
      params.mirostat_tau = static_cast<float>(tau);
      Candidates candidates;
      candidates.start(row);
      Mirostat(params).keep(candidates, row.size());
      const auto want =
          reference::top_k(reference::choice_of(row), std::max(1, static_cast<int>(k)));
      expect_same(contents(candidates), want, "mirostat 1");
      const mx::array array = composed::mirostat(
          mx::array(row.data(), {5000}, mx::float32), mx::array(static_cast<float>(mu)), 1);
      expect_same(contents(array), want, "composed mirostat 1");
    }
  }
}

}  // namespace
}  // namespace quince
