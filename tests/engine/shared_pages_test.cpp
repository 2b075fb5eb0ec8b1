// Sequences that share pages of keys and values answer as each would alone: on real graphs, with
// full attention, windows and rotating caches, natively and composed.
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/settings.h"

namespace quince::test {
namespace {

class SharedPages : public testing::TestWithParam<CacheSetting> {
 protected:
  void SetUp() override {
    skip_if_not_for_this_build(GetParam());
  }
  std::unique_ptr<Engine> make_engine(const EngineOptions& options) const {
    return quince::test::make_engine(GetParam(), options);
  }
};

TEST_P(SharedPages, TurnsOfAChatAndItsOtherEndings) {
  const auto engine = make_engine({});
  const int vocab = engine->info().vocab_size;
  std::mt19937 random(1);
  std::vector<int32_t> talk = random_tokens(random, 70, vocab);
  for (int turn = 0; turn < 5; ++turn) {
    const std::vector<int32_t> alone = ask(*engine, talk, 20, false);
    TokenStream stream = engine->submit(talk, greedy(20));
    const std::vector<int32_t> answer = collect(stream);
    EXPECT_EQ(answer, alone) << "turn " << turn;
    const int cached = stream.stats().cached_tokens;
    if (shares_after_rotation(GetParam())) {
      EXPECT_GE(cached, turn == 0 ? 0 : static_cast<int>(talk.size()) - 15);
    }
    // The last page is left in the middle: another answer than the one that is known.
    std::vector<int32_t> other = talk;
    other.insert(other.end(), answer.begin(), answer.begin() + 7);
    other.push_back((answer[7] + 1) % vocab);
    EXPECT_EQ(ask(*engine, other, 10), ask(*engine, other, 10, false)) << "turn " << turn;
    talk.insert(talk.end(), answer.begin(), answer.end());
    const std::vector<int32_t> question = random_tokens(random, 13, vocab);
    talk.insert(talk.end(), question.begin(), question.end());
  }
}

// Clients whose prompts begin alike, with cancellations and too little memory.
TEST_P(SharedPages, ManyClientsGetTheirLoneAnswers) {
  std::mt19937 random(2);
  const auto alone = make_engine({});
  const int vocab = alone->info().vocab_size;
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::vector<int32_t>> answers;
  const std::vector<int32_t> common = random_tokens(random, 150, vocab);
  for (int i = 0; i < 24; ++i) {
    std::vector<int32_t> prompt;
    if (i > 0 && i % 3 == 0) {  // goes on from an answer
      const size_t before = random() % prompts.size();
      prompt = prompts[before];
      prompt.insert(prompt.end(), answers[before].begin(), answers[before].end());
    } else {
      prompt.assign(common.begin(), common.begin() + static_cast<int64_t>(random() % 151));
    }
    const std::vector<int32_t> end = random_tokens(random, 1 + random() % 40, vocab);
    prompt.insert(prompt.end(), end.begin(), end.end());
    answers.push_back(ask(*alone, prompt, 25, false));
    prompts.push_back(std::move(prompt));
  }
  EngineOptions options;
  options.max_running = 5;
  options.kv_tokens = 32 * 30;
  options.prefill_chunk = 48;
  options.pool = std::make_shared<ThreadPool>(2);
  const auto engine = make_engine(options);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> clients;
  for (unsigned client = 0; client < 8; ++client) {
    clients.emplace_back([&, client] {
      std::mt19937 dice(client);
      for (int n = 0; n < 12; ++n) {
        const size_t which = dice() % prompts.size();
        const int cancel_at = dice() % 4 == 0 ? static_cast<int>(dice() % 25) : -1;
        TokenStream stream = engine->submit(prompts[which], greedy(25));
        size_t got = 0;
        while (const auto token = stream.next()) {
          wrong += token->id != answers[which][got];
          if (static_cast<int>(++got) == cancel_at) {
            stream.cancel();
          }
        }
        wrong += cancel_at < 0 && got != 25;
      }
    });
  }
  for (std::thread& client : clients) {
    client.join();
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(engine->stats().kv_tokens, 0);
  EXPECT_LE(engine->stats().kept_tokens, options.kv_tokens);
  EXPECT_GT(engine->stats().prefix_hits, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Models, SharedPages, testing::ValuesIn(cache_settings()), [](const auto& info) {
      return cache_setting_name(info.param);
    });

}  // namespace
}  // namespace quince::test
