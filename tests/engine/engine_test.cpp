#include "engine/engine.h"

#include <atomic>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/fakes.h"
#include "engine/requests.h"
#include "engine/sampling/sampler.h"

namespace quince {
namespace {

using test::collect;
using test::greedy;

Engine make_engine(
    const std::shared_ptr<FakeModelLog>& log = nullptr, const EngineOptions& options = {}) {
  return Engine([=] { return std::make_unique<FakeModel>(32, log); }, options);
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

TEST(Engine, TheNextTurnComputesWhatIsNew) {
  auto log = std::make_shared<FakeModelLog>();
  Engine engine = make_engine(log);
  TokenStream first = engine.submit({1, 2, 3}, greedy(3));
  EXPECT_EQ(collect(first), (std::vector<int32_t>{4, 5, 6}));
  const int before = log->rows_run;
  // Known are 1 2 3 4 5.
  TokenStream second = engine.submit({1, 2, 3, 4, 5, 6, 20}, greedy(2));
  EXPECT_EQ(collect(second), (std::vector<int32_t>{21, 22}));
  EXPECT_EQ(second.stats().cached_tokens, 5);
  EXPECT_EQ(log->rows_run - before, 2 + 1);
  // Another start: everything but the common part is computed.
  TokenStream third = engine.submit({1, 9}, greedy(1));
  EXPECT_EQ(collect(third), (std::vector<int32_t>{10}));
  EXPECT_EQ(third.stats().cached_tokens, 1);
  RequestOptions apart;
  apart.cache_prompt = false;
  TokenStream fourth = engine.submit({1, 2, 3}, greedy(1), apart);
  collect(fourth);
  EXPECT_EQ(fourth.stats().cached_tokens, 0);
  RequestOptions other;
  other.cache_root = 5;
  TokenStream fifth = engine.submit({1, 2, 3}, greedy(1), other);
  collect(fifth);
  EXPECT_EQ(fifth.stats().cached_tokens, 0);
  EXPECT_EQ(engine.stats().prefix_hits, 5 + 1);
  EXPECT_EQ(engine.stats().prefix_queries, 3 + 7 + 2 + 3);
}

TEST(Engine, TheSamePromptTwiceGivesTheSameAnswer) {
  Engine engine = make_engine();
  for (int i = 0; i < 3; ++i) {
    TokenStream stream = engine.submit({1, 2, 3}, greedy(3));
    EXPECT_EQ(collect(stream), (std::vector<int32_t>{4, 5, 6}));
    EXPECT_EQ(stream.stats().cached_tokens, i == 0 ? 0 : 2);
  }
}

TEST(Engine, KeepsNothingWhenThereIsNoRoomForIt) {
  EngineOptions options;
  options.kept_bytes = 0;
  Engine engine = make_engine(nullptr, options);
  for (int i = 0; i < 2; ++i) {
    TokenStream stream = engine.submit(std::vector<int32_t>(100, 2), greedy(3));
    collect(stream);
    EXPECT_EQ(stream.stats().cached_tokens, 0);
  }
  EXPECT_EQ(engine.stats().kept_tokens, 0);
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

// RUN-03: a dead engine is seen, and nobody waits for it.
TEST(Engine, ThatStopsAfterAnErrorSaysSoToAll) {
  auto log = std::make_shared<FakeModelLog>();
  EngineOptions options;
  options.max_running = 2;
  std::atomic<int> lines = 0;
  options.log = [&](const std::string& line) {
    lines += line.find("has stopped after an error") != std::string::npos ? 1 : 0;
  };
  Engine engine = make_engine(log, options);
  EXPECT_FALSE(engine.failure());
  std::vector<TokenStream> streams;
  for (int i = 0; i < 2; ++i) {
    streams.push_back(engine.submit(std::vector<int32_t>(100, i), greedy(500)));
    streams.back().next();
  }
  streams.push_back(engine.submit({1}, greedy(1)));  // waits for one of them
  const auto embeddings = engine.embed({std::vector<int32_t>(400, 1)}, Pooling::last);
  log->broken_caches = true;
  const auto stopped = [](const std::function<void()>& act) {
    try {
      act();
    } catch (const std::exception& error) {
      return std::string(error.what()).find("the fake cache is broken") != std::string::npos;
    }
    return false;
  };
  for (TokenStream& stream : streams) {
    EXPECT_THROW(collect(stream), std::runtime_error);
    EXPECT_EQ(stream.finish_reason(), FinishReason::error);
  }
  EXPECT_TRUE(engine.failure());
  EXPECT_TRUE(embeddings->ready());
  EXPECT_TRUE(stopped([&] { engine.submit({1}, greedy(1)); }));
  EXPECT_TRUE(stopped([&] { engine.embed({{1}}, Pooling::last); }));
  EXPECT_TRUE(stopped([&] { engine.forget_prompt({1}); }));
  EXPECT_EQ(engine.stats().running, 0);
  EXPECT_EQ(lines, 1);
  engine.drain();
}

// Damaged weights: the user's to mend, and no reason to look up a token that was never chosen.
TEST(Engine, LogitsThatAreNoNumbersEndTheRequest) {
  auto log = std::make_shared<FakeModelLog>();
  Engine engine = make_engine(log);
  log->nan_at_row = 2;
  TokenStream stream = engine.submit({1}, greedy(10));
  std::vector<int32_t> ids;
  try {
    while (const auto token = stream.next()) {
      ids.push_back(token->id);
    }
    ADD_FAILURE() << "no error";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("weights are damaged"), std::string::npos);
  }
  EXPECT_EQ(ids, (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(stream.finish_reason(), FinishReason::error);
  log->nan_at_row = -1;
  TokenStream next = engine.submit({1}, greedy(1));
  EXPECT_EQ(collect(next), (std::vector<int32_t>{2}));
}

// The step behind the end token is begun before the end is known; what it gives does not matter.
TEST(Engine, LogitsBehindTheEndDoNotMatter) {
  auto log = std::make_shared<FakeModelLog>();
  Engine engine = make_engine(log);
  log->nan_at_row = 3;
  SamplingParams params = greedy(100);
  params.stop_tokens = {10};
  TokenStream stream = engine.submit({7}, params);
  EXPECT_EQ(collect(stream), (std::vector<int32_t>{8, 9}));
  EXPECT_EQ(stream.finish_reason(), FinishReason::stop);
}

TEST(Engine, ALoaderThatThrowsIsReported) {
  EXPECT_THROW(
      Engine([]() -> std::unique_ptr<Model> { throw UserError("no such model"); }, {}), UserError);
}

TEST(Engine, DestructionCancelsWhatRuns) {
  std::optional<TokenStream> stream;
  {
    Engine engine = make_engine();
    stream.emplace(engine.submit({1}, greedy(900)));
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

TEST(Engine, SequencesAdvanceTogether) {
  auto log = std::make_shared<FakeModelLog>();
  EngineOptions options;
  options.pool = std::make_shared<ThreadPool>(2);
  Engine engine = make_engine(log, options);
  std::vector<TokenStream> streams;
  for (int i = 0; i < 8; ++i) {
    streams.push_back(engine.submit({i}, greedy(60 + 10 * i)));
  }
  for (int i = 0; i < 8; ++i) {
    const std::vector<int32_t> ids = collect(streams[i]);
    ASSERT_EQ(ids.size(), 60u + 10 * i);
    for (size_t n = 0; n < ids.size(); ++n) {
      ASSERT_EQ(ids[n], static_cast<int32_t>((i + 1 + n) % 32));
    }
  }
  EXPECT_EQ(log->most_sequences, 8);
  EXPECT_LT(log->steps, 300) << "one after another it would be 760";
}

TEST(Engine, ALongPromptIsMixedInByChunks) {
  auto log = std::make_shared<FakeModelLog>();
  EngineOptions options;
  options.prefill_chunk = 50;
  Engine engine = make_engine(log, options);
  TokenStream quick = engine.submit({1}, greedy(200));
  ASSERT_TRUE(quick.next());
  TokenStream slow = engine.submit(std::vector<int32_t>(900, 2), greedy(1));
  EXPECT_EQ(collect(slow), (std::vector<int32_t>{3}));
  EXPECT_EQ(collect(quick).size(), 199u);
  EXPECT_LE(log->largest_batch, 51);
}

// The owner of one stream does not read: its sequence waits, and the other goes on.
TEST(Engine, ASlowReaderPausesItsOwnSequenceOnly) {
  auto log = std::make_shared<FakeModelLog>();
  Engine engine = make_engine(log);
  TokenStream slow = engine.submit({1}, greedy(900));
  TokenStream fast = engine.submit({2}, greedy(900));
  EXPECT_EQ(collect(fast).size(), 900u);
  const int rows = log->rows_run;
  EXPECT_LT(rows, 900 + 300);
  const std::vector<int32_t> ids = collect(slow);
  ASSERT_EQ(ids.size(), 900u);
  for (size_t n = 0; n < ids.size(); ++n) {
    ASSERT_EQ(ids[n], static_cast<int32_t>((2 + n) % 32));
  }
}

TEST(Engine, WhenMemoryEndsOneSequenceIsComputedAnew) {
  auto log = std::make_shared<FakeModelLog>();
  EngineOptions options;
  options.kv_tokens = 160;
  Engine engine = make_engine(log, options);
  std::vector<TokenStream> streams;
  for (int i = 0; i < 3; ++i) {
    streams.push_back(engine.submit({i}, greedy(100)));
  }
  int preemptions = 0;
  for (int i = 0; i < 3; ++i) {
    const std::vector<int32_t> ids = collect(streams[i]);
    ASSERT_EQ(ids.size(), 100u);
    for (size_t n = 0; n < ids.size(); ++n) {
      ASSERT_EQ(ids[n], static_cast<int32_t>((i + 1 + n) % 32));
    }
    preemptions += streams[i].stats().preemptions;
  }
  EXPECT_GT(preemptions, 0);
  TokenStream large = engine.submit({1}, greedy(200));
  try {
    collect(large);
    ADD_FAILURE() << "no error";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("160 tokens of memory"), std::string::npos);
  }
}

TEST(Engine, AFailedStepEndsThoseThatWereInItAndNoOther) {
  auto log = std::make_shared<FakeModelLog>();
  Engine engine = make_engine(log);
  TokenStream paused = engine.submit({1}, greedy(900));  // nobody reads: it waits after a while
  while (engine.stats().steps < 256) {
    std::this_thread::yield();
  }
  log->fail_at_row = log->rows_run + 10;
  TokenStream stream = engine.submit(std::vector<int32_t>(20, 1), greedy(3));
  EXPECT_THROW(collect(stream), std::runtime_error);
  log->fail_at_row = -1;
  EXPECT_EQ(collect(paused).size(), 900u);
}

TEST(Engine, DeadlinesEndRequestsAndKeepWhatThereIs) {
  Engine engine = make_engine();
  RequestOptions late;
  late.deadline = 0.0;
  TokenStream never = engine.submit({1}, greedy(5), late);
  EXPECT_TRUE(collect(never).empty());
  EXPECT_EQ(never.finish_reason(), FinishReason::deadline);
  RequestOptions soon;
  soon.deadline = 0.05;
  TokenStream unread = engine.submit({1}, greedy(900), soon);
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  const size_t count = collect(unread).size();
  EXPECT_GT(count, 0u);
  EXPECT_LT(count, 900u);
  EXPECT_EQ(unread.finish_reason(), FinishReason::deadline);
}

TEST(Engine, DrainWaitsForWhatRunsAndRefusesTheRest) {
  Engine engine = make_engine();
  TokenStream stream = engine.submit({1}, greedy(100));
  engine.drain();
  EXPECT_EQ(collect(stream).size(), 100u);
  EXPECT_THROW(engine.submit({1}, greedy(1)), UserError);
  EXPECT_EQ(engine.stats().running, 0);
}

TEST(Engine, AFullQueueIsSaid) {
  EngineOptions options;
  options.max_running = 1;
  options.max_waiting = 1;
  Engine engine = make_engine(nullptr, options);
  TokenStream first = engine.submit({1}, greedy(900));
  TokenStream second = engine.submit({1}, greedy(900));
  EXPECT_THROW(engine.submit({1}, greedy(1)), UserError);
  first.cancel();
  collect(first);
  collect(second);
}

// Random requests of many clients with cancellations, slow readers and too little memory: every
// answer is the one it would be alone.
TEST(Engine, ManyClientsNeverGetAForeignToken) {
  EngineOptions options;
  options.max_running = 6;
  options.kv_tokens = 32 * 40;
  options.prefill_chunk = 24;
  options.pool = std::make_shared<ThreadPool>(2);
  Engine engine = make_engine(nullptr, options);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> clients;
  for (int client = 0; client < 12; ++client) {
    clients.emplace_back([&, client] {
      std::mt19937 random(static_cast<unsigned>(client));
      for (int n = 0; n < 60; ++n) {
        std::vector<int32_t> prompt(1 + random() % 200, static_cast<int32_t>(random() % 32));
        const int wanted = 1 + static_cast<int>(random() % 60);
        const int cancel_at = random() % 4 == 0 ? static_cast<int>(random() % 20) : -1;
        TokenStream stream = engine.submit(prompt, greedy(wanted));
        int got = 0;
        while (const auto token = stream.next()) {
          wrong += token->id != (prompt.back() + 1 + got) % 32;
          if (++got == cancel_at) {
            stream.cancel();
          }
        }
        wrong += cancel_at < 0 && got != wanted;
      }
    });
  }
  for (std::thread& client : clients) {
    client.join();
  }
  EXPECT_EQ(wrong, 0);
  engine.drain();
  EXPECT_EQ(engine.stats().running, 0);
}

// After t comes t + 1: from 5 the end token 9 would be the fourth.
TEST(Engine, EndTokensMinTokensAndIgnoreEos) {
  Engine engine = make_engine();
  SamplingParams params = greedy(12);
  params.end_tokens = {9};
  const auto run = [&] {
    TokenStream stream = engine.submit({5}, params);
    std::vector<int32_t> ids;
    while (const auto token = stream.next()) {
      ids.push_back(token->id);
    }
    return std::pair(ids, stream.finish_reason());
  };
  EXPECT_EQ(run(), std::pair(std::vector<int32_t>({6, 7, 8}), FinishReason::stop));
  params.min_tokens = 4;  // instead of 9 the first of the others, which are equal: 0, 1, ..., 9
  EXPECT_EQ(
      run(),
      std::pair(std::vector<int32_t>({6, 7, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8}), FinishReason::length));
  params.max_tokens = 13;
  EXPECT_EQ(run().second, FinishReason::stop);
  params.min_tokens = 0;
  params.ignore_eos = true;
  params.max_tokens = 30;
  const auto [ids, reason] = run();
  EXPECT_EQ(reason, FinishReason::length);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 9), 0);
}

TEST(Engine, LogprobsComeWithTheTokens) {
  Engine engine = make_engine();
  SamplingParams params = greedy(5);
  params.top_logprobs = 4;
  TokenStream other = engine.submit({1}, greedy(5));
  TokenStream stream = engine.submit({5}, params);
  const double sum = std::exp(10.0) + 31;
  int count = 0;
  while (const auto token = stream.next()) {
    ++count;
    ASSERT_EQ(token->top.size(), 4u);
    EXPECT_EQ(token->top[0].id, token->id);
    EXPECT_NEAR(token->logprob, 10 - std::log(sum), 1e-4);
    EXPECT_NEAR(token->top[3].logprob, -std::log(sum), 1e-4);
  }
  EXPECT_EQ(count, 5);
  while (const auto token = other.next()) {
    EXPECT_TRUE(token->top.empty() && std::isnan(token->logprob));
  }
}

TEST(Engine, ParametersAreCheckedAgainstTheVocabulary) {
  Engine engine = make_engine();
  SamplingParams params = greedy(5);
  params.logit_bias = {{32, 1.0f}};
  EXPECT_THROW(engine.submit({5}, params), UserError);
  params.logit_bias = {{31, 1.0f}};
  EXPECT_NO_THROW(engine.submit({5}, params));
}

// In chunks, beside other requests, with kept pages that must not be used, and with no token
// generated at all.
TEST(Engine, LogprobsOfThePrompt) {
  EngineOptions options;
  options.prefill_chunk = 4;
  options.pool = std::make_shared<ThreadPool>(2);
  Engine engine = make_engine(nullptr, options);
  const std::vector<int32_t> prompt = {5, 6, 7, 9, 10, 3, 4, 5, 6, 7, 20};
  const double sum = std::exp(10.0) + 31;
  TokenStream before = engine.submit(prompt, greedy(2));
  while (before.next()) {
  }
  for (const int max_tokens : {6, 0}) {
    SamplingParams params = greedy(max_tokens);
    params.prompt_logprobs = 3;
    TokenStream other = engine.submit({1}, greedy(20));
    TokenStream stream = engine.submit(prompt, params);
    std::vector<int32_t> ids;
    while (const auto token = stream.next()) {
      ids.push_back(token->id);
      EXPECT_EQ(stream.prompt_logprobs().size(), prompt.size() - 1);
    }
    EXPECT_EQ(ids.size(), static_cast<size_t>(max_tokens));
    EXPECT_EQ(stream.stats().cached_tokens, 0);
    for (size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(ids[i], 21 + static_cast<int32_t>(i));
    }
    const auto scored = stream.prompt_logprobs();
    ASSERT_EQ(scored.size(), prompt.size() - 1);
    for (size_t i = 0; i < scored.size(); ++i) {
      EXPECT_EQ(scored[i].id, prompt[i + 1]);
      const double logit = prompt[i + 1] == prompt[i] + 1 ? 10 : 0;
      EXPECT_NEAR(scored[i].logprob, logit - std::log(sum), 1e-4) << i;
      ASSERT_EQ(scored[i].top.size(), 3u);
      EXPECT_EQ(scored[i].top[0].id, prompt[i] + 1);
    }
    for (int n = 0; n < 20; ++n) {
      ASSERT_EQ(other.next()->id, 2 + n);
    }
  }
}

// Owners that do not wait: they are told, and then take what there is.
TEST(Engine, TellsWhenThereIsSomething) {
  Engine engine = make_engine();
  struct Told {
    std::mutex mutex;
    std::condition_variable changed;
    std::atomic<int> times = 0;
  };
  const auto told = std::make_shared<Told>();
  const auto tell = [told] {
    const std::scoped_lock lock(told->mutex);
    ++told->times;
    told->changed.notify_all();
  };
  TokenStream stream = engine.submit({1}, greedy(600));  // more than a stream holds
  stream.on_ready(tell);
  std::vector<int32_t> ids;
  for (bool ended = false; !ended;) {
    {
      std::unique_lock lock(told->mutex);
      ASSERT_TRUE(
          told->changed.wait_for(lock, std::chrono::seconds(20), [&] { return told->times > 0; }));
      told->times = 0;
    }
    while (stream.ready() && !ended) {
      const auto token = stream.next();
      ended = !token;
      if (token) {
        ids.push_back(token->id);
      }
    }
  }
  EXPECT_EQ(ids.size(), 600u);
  EXPECT_EQ(stream.finish_reason(), FinishReason::length);
  const int before_end = told->times;
  stream.on_ready(tell);  // of what has been there before
  EXPECT_EQ(told->times, before_end + 1);

  TokenStream cancelled = engine.submit({1}, greedy());
  cancelled.on_ready(tell);
  cancelled.cancel();
  EXPECT_LE(collect(cancelled).size(), 999u);
  EXPECT_EQ(cancelled.finish_reason(), FinishReason::cancelled);
  TokenStream silent = engine.submit({1}, greedy(5));
  silent.on_ready(tell);
  silent.on_ready(nullptr);
  const int before = told->times;
  collect(silent);
  EXPECT_LE(told->times, before + 1);
}

}  // namespace
}  // namespace quince
