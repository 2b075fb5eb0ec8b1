// What changes single logits: penalties, DRY, bans and bias, against their definitions.
#include "engine/sampling/penalties.h"

#include <random>

#include <gtest/gtest.h>

#include "engine/sampling/bans.h"
#include "engine/sampling/dry.h"
#include "engine/sampling_reference.h"

namespace quince {
namespace {

using Tokens = std::vector<int32_t>;

std::vector<float> random_row(std::mt19937& random, int size) {
  std::vector<float> row(size);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  std::generate(row.begin(), row.end(), [&] { return normal(random); });
  return row;
}

Tokens random_tokens(std::mt19937& random, int count, int alphabet) {
  Tokens tokens(count);
  std::generate(
      tokens.begin(), tokens.end(), [&] { return static_cast<int32_t>(random() % alphabet); });
  return tokens;
}

// Applied to the whole row, and to a list of some tokens, both must give the definition's logits.
template <class Apply>
void expect_logits(const std::vector<float>& row, Apply apply, const reference::Choice& want) {
  Candidates whole;
  whole.start(row);
  apply(whole);
  ASSERT_TRUE(whole.whole());
  for (const auto& [id, x] : want) {
    ASSERT_NEAR(whole.row()[id], x, 1e-3 * (1 + std::abs(x))) << "token " << id;
  }
  Candidates some;
  some.start(row);
  some.keep_best(row.size() / 2);
  apply(some);
  ASSERT_EQ(some.size(), row.size() / 2);
  for (const Candidate& c : some.list()) {
    const double x = want.at(c.id);
    ASSERT_NEAR(c.logit, x, 1e-3 * (1 + std::abs(x))) << "token " << c.id << " in a list";
  }
  ASSERT_EQ(some.best(1)[0].logit, some.highest());
}

TEST(Penalties, RandomHistoriesAgainstTheDefinition) {
  std::mt19937 random(21);
  for (int round = 0; round < 300; ++round) {
    SamplingParams params;
    params.repetition_penalty =
        round % 3 == 0 ? 1.0f : 0.5f + static_cast<float>(random() % 20) / 10;
    params.presence_penalty = round % 4 == 0 ? 0.0f : static_cast<float>(random() % 40) / 10 - 2;
    params.frequency_penalty = round % 5 == 0 ? 0.0f : static_cast<float>(random() % 40) / 10 - 2;
    params.repeat_last_n = static_cast<int>(random() % 30) - 1;
    const Tokens prompt = random_tokens(random, static_cast<int>(random() % 40), 20);
    const Tokens output = random_tokens(random, static_cast<int>(random() % 40), 20);
    Penalties penalties(params);
    penalties.observe(prompt);
    for (const int32_t token : output) {
      penalties.accept(token);
    }
    const std::vector<float> row = random_row(random, 30);
    ASSERT_NO_FATAL_FAILURE(expect_logits(
        row,
        [&](Candidates& c) { penalties.apply(c); },
        reference::penalize(reference::choice_of(row), params, prompt, output)));
  }
}

TEST(Penalties, PresenceAndFrequencyDoNotCountThePrompt) {
  SamplingParams params;
  params.presence_penalty = 1.0f;
  params.frequency_penalty = 0.5f;
  Penalties penalties(params);
  penalties.observe(Tokens{1, 1, 1});
  penalties.accept(2);
  penalties.accept(2);
  const std::vector<float> row = {5, 5, 5};
  Candidates candidates;
  candidates.start(row);
  penalties.apply(candidates);
  EXPECT_EQ(candidates.row()[0], 5.0f);
  EXPECT_EQ(candidates.row()[1], 5.0f);
  EXPECT_EQ(candidates.row()[2], 3.0f);
}

TEST(Dry, TheExampleOfItsAuthor) {
  // ... a b c c | b c y | a b c -> c would make 4 of 3 repeated, y 3 of 2, b 2 of 1.
  const Tokens history = {0, 1, 2, 2, 1, 2, 3, 0, 1, 2};
  SamplingParams params;
  params.dry_multiplier = 0.8f;
  params.dry_base = 2.0f;
  params.dry_allowed_length = 2;
  Dry dry(params);
  const std::vector<float> row(5, 10.0f);
  Candidates candidates;
  candidates.start(row);
  dry.apply(candidates, history);
  EXPECT_FLOAT_EQ(candidates.row()[2], 10 - 0.8f * 2);
  EXPECT_FLOAT_EQ(candidates.row()[3], 10 - 0.8f);
  EXPECT_FLOAT_EQ(candidates.row()[1], 10);
  EXPECT_FLOAT_EQ(candidates.row()[0], 10);
}

TEST(Dry, RandomHistoriesAgainstTheDefinition) {
  std::mt19937 random(22);
  int punished = 0;
  for (int round = 0; round < 2000; ++round) {
    const int alphabet = 2 + static_cast<int>(random() % 5);
    SamplingParams params;
    params.dry_multiplier = 0.5f;
    params.dry_base = 1.1f;
    params.dry_allowed_length = static_cast<int>(random() % 5);
    params.dry_penalty_last_n = round % 2 == 0 ? -1 : 1 + static_cast<int>(random() % 40);
    for (int i = static_cast<int>(random() % 4); i > 0; --i) {
      params.dry_sequence_breakers.push_back(
          random_tokens(random, 1 + static_cast<int>(random() % 3), alphabet + 1));
    }
    const Tokens history = random_tokens(random, static_cast<int>(random() % 60), alphabet);
    const std::vector<float> row = random_row(random, alphabet + 2);
    Dry dry(params);
    const auto want = reference::dry(reference::choice_of(row), params, history);
    punished += want != reference::choice_of(row) ? 1 : 0;
    ASSERT_NO_FATAL_FAILURE(expect_logits(
        row, [&](Candidates& c) { dry.apply(c, history); }, want))
        << "round " << round;
  }
  EXPECT_GT(punished, 500);
}

TEST(Dry, LongRepetitionsStayFinite) {
  const Tokens history(5000, 1);
  SamplingParams params;
  params.dry_multiplier = 1e9f;
  Dry dry(params);
  const std::vector<float> row = {0, 1};
  Candidates candidates;
  candidates.start(row);
  dry.apply(candidates, history);
  EXPECT_TRUE(std::isfinite(candidates.row()[1]));
  EXPECT_FLOAT_EQ(candidates.row()[1], -1e20f);  // the most that is taken off
}

class BansTest : public testing::Test {
 protected:
  std::set<int32_t> left(const MaskWords* mask = nullptr, const Tokens& generated = {}) {
    Candidates candidates;
    candidates.start(row);
    Bans(params).apply(candidates, mask, generated);
    std::set<int32_t> ids;
    for (const Candidate& c : candidates.list()) {
      ids.insert(c.id);
    }
    return ids;
  }

  SamplingParams params;
  std::vector<float> row = std::vector<float>(6, 1.0f);
};

TEST_F(BansTest, AllowedTokensAndTheMaskTogether) {
  params.allowed_token_ids = {1, 3, 5, 77};
  EXPECT_EQ(left(), (std::set<int32_t>{1, 3, 5}));
  const MaskWords mask = {0b001010};
  EXPECT_EQ(left(&mask), (std::set<int32_t>{1, 3}));
}

TEST_F(BansTest, EndTokens) {
  params.end_tokens = {0};
  params.stop_tokens = {1};
  EXPECT_EQ(left().size(), 6u);
  params.min_tokens = 2;
  EXPECT_EQ(left(nullptr, {4}), (std::set<int32_t>{2, 3, 4, 5}));
  EXPECT_EQ(left(nullptr, {4, 4}).size(), 6u);
  params.min_tokens = 0;
  params.ignore_eos = true;
  EXPECT_EQ(left(nullptr, {4, 4}), (std::set<int32_t>{1, 2, 3, 4, 5}));
  params.min_tokens = 2;
  EXPECT_EQ(left(nullptr, {}), (std::set<int32_t>{2, 3, 4, 5}));
  EXPECT_EQ(left(nullptr, {4, 4}), (std::set<int32_t>{1, 2, 3, 4, 5}));
}

// A grammar that is at its end allows nothing but the end: min_tokens must not make that an error.
TEST_F(BansTest, MinTokensYieldsToAMaskThatLeavesNothingElse) {
  params.end_tokens = {0, 0, 9};
  params.min_tokens = 5;
  const MaskWords only_end = {1};
  EXPECT_EQ(left(&only_end), (std::set<int32_t>{0}));
  const MaskWords more = {0b101};
  EXPECT_EQ(left(&more), (std::set<int32_t>{2}));
}

TEST_F(BansTest, BadWordsAreNeverCompleted) {
  params.bad_words = {{2}, {3, 4}, {0, 1, 5}};
  EXPECT_EQ(left(), (std::set<int32_t>{0, 1, 3, 4, 5}));
  EXPECT_EQ(left(nullptr, {3}), (std::set<int32_t>{0, 1, 3, 5}));
  EXPECT_EQ(left(nullptr, {3, 3, 0, 1}), (std::set<int32_t>{0, 1, 3, 4}));
  EXPECT_EQ(left(nullptr, {0, 1, 3}), (std::set<int32_t>{0, 1, 3, 5}));
}

TEST_F(BansTest, BiasIsAddedAndBringsNothingBack) {
  params.allowed_token_ids = {0, 1};
  params.logit_bias = {{0, 2.5f}, {2, 100.0f}, {1, -INFINITY}};
  Candidates candidates;
  candidates.start(row);
  Bans(params).apply(candidates, nullptr, {});
  ASSERT_EQ(candidates.size(), 1u);
  EXPECT_EQ(candidates.list()[0].id, 0);
  EXPECT_EQ(candidates.list()[0].logit, 3.5f);
}

TEST_F(BansTest, WithoutAnyTheRowIsNotCopied) {
  Candidates candidates;
  candidates.start(row);
  Bans(params).apply(candidates, nullptr, Tokens{1, 2});
  EXPECT_EQ(candidates.row().data(), row.data());
}

}  // namespace
}  // namespace quince
