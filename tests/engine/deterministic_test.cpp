// With EngineOptions::deterministic a request's logits are the same to the bit, whatever else runs
// or ran: other requests, what they left in the cache, drafts, and having to begin anew.
#include <random>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/settings.h"

namespace quince::test {
namespace {

class Deterministic : public testing::TestWithParam<CacheSetting> {
 protected:
  void SetUp() override {
    skip_if_not_for_this_build(GetParam());
  }
  std::unique_ptr<Engine> make_engine(EngineOptions options) const {
    options.deterministic = true;
    options.context_length = 600;
    options.cache.max_size = GetParam().max_size;
    options.cache.keys = options.cache.values = GetParam().format;
    options.pool = std::make_shared<ThreadPool>(2);
    return std::make_unique<Engine>(
        [setting = GetParam()] {
          LoadOptions load = load_options(setting.kernels);
          load.batch_invariant = true;
          return load_model(golden_for(setting).files(), load);
        },
        options);
  }
};

struct Answer {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
};

SamplingParams watched() {
  SamplingParams params = unfiltered();
  params.seed = 7;
  params.max_tokens = 40;
  params.logprobs = true;
  return params;
}

Answer read(TokenStream& stream) {
  Answer answer;
  while (const auto token = stream.next()) {
    answer.ids.push_back(token->id);
    answer.logprobs.push_back(token->logprob);
  }
  return answer;
}

TEST_P(Deterministic, LogitsDoNotDependOnWhatElseRunsOrRan) {
  std::mt19937 random(3);
  const auto alone = make_engine({});
  const int vocab = alone->info().vocab_size;
  const std::vector<int32_t> prompt = random_tokens(random, 130, vocab);
  TokenStream lone = alone->submit(prompt, watched());
  const Answer want = read(lone);
  ASSERT_EQ(want.ids.size(), 40u);

  EngineOptions crowded;
  crowded.prefill_chunk = 48;
  crowded.max_running = 6;
  crowded.kv_tokens = 32 * 10;
  crowded.draft_tokens = 3;
  crowded.draft_always = true;
  const auto engine = make_engine(crowded);
  for (int round = 0; round < 4; ++round) {
    std::vector<TokenStream> others;
    for (int64_t i = 0; i < 8; ++i) {
      // Some begin like the watched one, by a length that is no page's.
      std::vector<int32_t> other(prompt.begin(), prompt.begin() + i * 13);
      const auto rest = random_tokens(random, 5 + random() % 60, vocab);
      other.insert(other.end(), rest.begin(), rest.end());
      others.push_back(engine->submit(other, greedy(10 + static_cast<int>(random() % 40))));
      if (i == 4) {
        others.push_back(engine->submit(prompt, watched()));
      }
    }
    for (size_t i = 0; i < others.size(); ++i) {
      const Answer got = read(others[i]);
      if (i == 5) {
        EXPECT_EQ(got.ids, want.ids) << "round " << round;
        EXPECT_EQ(got.logprobs, want.logprobs) << "round " << round;
      }
    }
  }
  if (GetParam().kernels == KernelSet::native) {
    EXPECT_GT(engine->stats().drafted_tokens, 0);
    EXPECT_GT(engine->stats().preemptions, 0);
    EXPECT_EQ(engine->stats().prefix_hits > 0, shares_after_rotation(GetParam()));
  } else {  // nothing is shared
    EXPECT_EQ(engine->stats().prefix_hits, 0);
    EXPECT_EQ(engine->stats().drafted_tokens, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, Deterministic, testing::ValuesIn(cache_settings()), [](const auto& info) {
      return cache_setting_name(info.param);
    });

}  // namespace
}  // namespace quince::test
