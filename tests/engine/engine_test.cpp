#include "engine/engine.h"

#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/fakes.h"
#include "engine/generation.h"

namespace quince {
namespace {

Engine make_engine(
    std::shared_ptr<FakeModelLog> log = nullptr, EngineOptions options = {}, bool can_trim = true) {
  return Engine([=] { return std::make_unique<FakeModel>(32, log, can_trim); }, options);
}

SamplingParams greedy(int max_tokens = -1) {
  SamplingParams p;
  p.temperature = 0.0f;
  p.max_tokens = max_tokens;
  return p;
}

std::vector<int32_t> collect(TokenStream& stream) {
  std::vector<int32_t> ids;
  while (const auto token = stream.next()) {
    ids.push_back(token->id);
  }
  return ids;
}

TEST(Engine, GeneratesUntilMaxTokens) {
  Engine engine = make_engine();
  TokenStream stream = engine.submit({3, 4, 5}, greedy(4));
  EXPECT_EQ(collect(stream), (std::vector<int32_t>{6, 7, 8, 9}));
  EXPECT_EQ(stream.finish_reason(), FinishReason::length);
  EXPECT_EQ(stream.stats().prompt_tokens, 3);
  EXPECT_EQ(stream.stats().generated_tokens, 4);
}

TEST(Engine, EndTokenEndsAndIsNotReturned) {
  Engine engine = make_engine();
  SamplingParams params = greedy(100);
  params.stop_tokens = {31, 10};
  TokenStream stream = engine.submit({7}, params);
  EXPECT_EQ(collect(stream), (std::vector<int32_t>{8, 9}));
  EXPECT_EQ(stream.finish_reason(), FinishReason::stop);
}

TEST(Engine, MaxTokensZeroRunsThePromptOnly) {
  Engine engine = make_engine();
  TokenStream stream = engine.submit({1, 2}, greedy(0));
  EXPECT_TRUE(collect(stream).empty());
  EXPECT_EQ(stream.finish_reason(), FinishReason::length);
}

TEST(Engine, StopsWhenTheContextIsFull) {
  EngineOptions options;
  options.context_length = 6;
  Engine engine = make_engine(nullptr, options);
  TokenStream stream = engine.submit({1, 2, 3}, greedy());
  EXPECT_EQ(collect(stream).size(), 3u);
  EXPECT_EQ(stream.finish_reason(), FinishReason::length);
}

TEST(Engine, RefusesWhatCannotWork) {
  EngineOptions options;
  options.context_length = 4;
  Engine engine = make_engine(nullptr, options);
  EXPECT_THROW(engine.submit({}, greedy()), UserError);
  EXPECT_THROW(engine.submit({1, 32}, greedy()), UserError);
  EXPECT_THROW(engine.submit({-1}, greedy()), UserError);
  try {
    engine.submit({1, 2, 3, 4, 5}, greedy());
    FAIL() << "an over-long prompt was taken";
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("5 tokens"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("holds 4"), std::string::npos);
  }
}

TEST(Engine, LongPromptsRunInChunks) {
  auto log = std::make_shared<FakeModelLog>();
  EngineOptions options;
  options.prefill_chunk = 16;
  Engine engine = make_engine(log, options);
  TokenStream stream = engine.submit(std::vector<int32_t>(100, 2), greedy(1));
  EXPECT_EQ(collect(stream), (std::vector<int32_t>{3}));
  EXPECT_EQ(log->largest_batch, 16);
  EXPECT_EQ(log->rows_run, 100);
}

TEST(Engine, SessionReusesTheCommonPrefix) {
  auto log = std::make_shared<FakeModelLog>();
  Engine engine = make_engine(log);
  auto session = engine.make_session();
  TokenStream first = engine.submit({1, 2, 3}, greedy(3), session);
  EXPECT_EQ(collect(first), (std::vector<int32_t>{4, 5, 6}));
  const int before = log->rows_run;
  // The cache holds 1 2 3 4 5; the next turn shares them.
  TokenStream second = engine.submit({1, 2, 3, 4, 5, 6, 20}, greedy(2), session);
  EXPECT_EQ(collect(second), (std::vector<int32_t>{21, 22}));
  EXPECT_EQ(second.stats().cached_tokens, 5);
  EXPECT_EQ(log->rows_run - before, 2 + 1);
  // Another start: everything but the common part is rebuilt.
  TokenStream third = engine.submit({1, 9}, greedy(1), session);
  EXPECT_EQ(collect(third), (std::vector<int32_t>{10}));
  EXPECT_EQ(third.stats().cached_tokens, 1);
}

TEST(Engine, TheSamePromptTwiceGivesTheSameAnswer) {
  Engine engine = make_engine();
  auto session = engine.make_session();
  for (int i = 0; i < 3; ++i) {
    TokenStream stream = engine.submit({1, 2, 3}, greedy(3), session);
    EXPECT_EQ(collect(stream), (std::vector<int32_t>{4, 5, 6}));
    EXPECT_EQ(stream.stats().cached_tokens, i == 0 ? 0 : 2);
  }
}

TEST(Engine, ACacheThatCannotTrimIsRebuilt) {
  Engine engine = make_engine(nullptr, {}, false);
  auto session = engine.make_session();
  TokenStream first = engine.submit({1, 2, 3}, greedy(3), session);
  collect(first);
  TokenStream second = engine.submit({1, 2, 9}, greedy(1), session);
  EXPECT_EQ(collect(second), (std::vector<int32_t>{10}));
  EXPECT_EQ(second.stats().cached_tokens, 0);
}

TEST(Engine, CancelEndsTheRequestAndTheEngineLivesOn) {
  Engine engine = make_engine();
  TokenStream endless = engine.submit({1}, greedy(900));
  ASSERT_TRUE(endless.next());
  endless.cancel();
  collect(endless);
  EXPECT_EQ(endless.finish_reason(), FinishReason::cancelled);
  {
    TokenStream dropped = engine.submit({1}, greedy(900));
  }
  TokenStream next = engine.submit({1}, greedy(1));
  EXPECT_EQ(collect(next), (std::vector<int32_t>{2}));
}

TEST(Engine, AFailedStepEndsThatRequestWithItsError) {
  auto log = std::make_shared<FakeModelLog>();
  Engine engine = make_engine(log);
  log->fail_at_row = 2;
  TokenStream stream = engine.submit({1, 2, 3, 4}, greedy(3));
  EXPECT_THROW(collect(stream), std::runtime_error);
  EXPECT_EQ(stream.finish_reason(), FinishReason::error);
  EXPECT_FALSE(stream.next());
  log->fail_at_row = -1;
  TokenStream next = engine.submit({1}, greedy(1));
  EXPECT_EQ(collect(next), (std::vector<int32_t>{2}));
}

TEST(Engine, ALoaderThatThrowsIsReported) {
  EXPECT_THROW(
      Engine([]() -> std::unique_ptr<Model> { throw UserError("no such model"); }, {}), UserError);
}

TEST(Engine, DestructionCancelsWhatRuns) {
  std::optional<TokenStream> stream;
  std::shared_ptr<Session> session;
  {
    Engine engine = make_engine();
    session = engine.make_session();
    stream.emplace(engine.submit({1}, greedy(900), session));
    ASSERT_TRUE(stream->next());
  }
  collect(*stream);
  EXPECT_EQ(stream->finish_reason(), FinishReason::cancelled);
}

TEST(Engine, ManyCallersAtOnceEachGetTheirOwnTokens) {
  Engine engine = make_engine();
  std::vector<std::thread> callers;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&, i] {
      for (int n = 0; n < 20; ++n) {
        TokenStream stream = engine.submit({i}, greedy(3));
        if (collect(stream) != std::vector<int32_t>{i + 1, i + 2, i + 3}) {
          ++wrong;
        }
      }
    });
  }
  for (auto& caller : callers) {
    caller.join();
  }
  EXPECT_EQ(wrong, 0);
}

TEST(Sampler, ComposedAgreesWithNativeOnGreedyAndRespectsFilters) {
  const mlx::core::array logits = mlx::core::array({2.0f, 1.5f, 0.0f, -1.0f}, {1, 4});
  for (const auto device :
       {mlx::core::Device(mlx::core::Device::cpu), mlx::core::Device(mlx::core::Device::gpu)}) {
    SamplingParams params = greedy();
    params.repetition_penalty = 2.0f;
    params.logprobs = true;
    auto sampler = make_sampler(params, {}, device);
    auto [first, logprob] = sampler->sample(logits);
    EXPECT_EQ(first.item<int32_t>(), 0);
    EXPECT_NEAR(logprob.item<float>(), -0.58314f, 1e-4);
    EXPECT_EQ(sampler->sample(logits).first.item<int32_t>(), 1);
    SamplingParams narrow;
    narrow.temperature = 50.0f;
    narrow.top_k = 2;
    narrow.top_p = 1.0f;
    narrow.min_p = 0.0f;
    auto two = make_sampler(narrow, {}, device);
    std::set<int32_t> seen;
    for (int i = 0; i < 50; ++i) {
      seen.insert(two->sample(logits).first.item<int32_t>());
    }
    EXPECT_EQ(seen, (std::set<int32_t>{0, 1}));
    narrow.top_k = 0;
    narrow.top_p = 0.6f;
    auto nucleus = make_sampler(narrow, {}, device);
    seen.clear();
    for (int i = 0; i < 50; ++i) {
      seen.insert(nucleus->sample(logits).first.item<int32_t>());
    }
    EXPECT_EQ(seen, (std::set<int32_t>{0, 1}));
  }
}

}  // namespace
}  // namespace quince
