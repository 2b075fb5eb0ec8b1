// Drafted tokens change how quickly answers come and nothing else.
#include <atomic>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/fakes.h"
#include "engine/requests.h"
#include "engine/settings.h"
#include "models/tiny_model.h"

namespace quince::test {
namespace {

EngineOptions drafting(int tokens) {
  EngineOptions options;
  options.draft_tokens = tokens;
  options.draft_always = true;
  return options;
}

std::vector<int32_t> count_up(int from, int n) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < n; ++i) {
    tokens.push_back((from + i) % 32);
  }
  return tokens;
}

TEST(Speculation, TextsThatRepeatTakeFewerSteps) {
  const auto log = std::make_shared<FakeModelLog>();
  Engine engine([=] { return std::make_unique<FakeModel>(32, log); }, drafting(7));
  TokenStream stream = engine.submit(count_up(0, 40), greedy(64));
  EXPECT_EQ(collect(stream), count_up(40, 64));
  EXPECT_LT(log->steps, 20);
  const GenerationStats stats = stream.stats();
  EXPECT_EQ(stats.drafted_tokens, stats.accepted_tokens);
  EXPECT_GT(stats.accepted_tokens, 40);
  EXPECT_EQ(stats.generated_tokens, 64);
  EXPECT_EQ(engine.stats().accepted_tokens, stats.accepted_tokens);
}

TEST(Speculation, EndsWhereItWouldHaveEnded) {
  Engine engine([] { return std::make_unique<FakeModel>(32); }, drafting(7));
  SamplingParams params = greedy(64);
  params.stop_tokens = {13};
  TokenStream stream = engine.submit(count_up(0, 40), params);
  EXPECT_EQ(collect(stream), count_up(8, 5));
  EXPECT_EQ(stream.finish_reason(), FinishReason::stop);
  // And the next one can go on from what was kept.
  TokenStream next = engine.submit(count_up(0, 44), greedy(30));
  EXPECT_EQ(collect(next), count_up(44, 30));
}

// After 2 comes 3, and the prompt says otherwise.
TEST(Speculation, WrongGuessesAreTakenBack) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < 6; ++i) {
    prompt.insert(prompt.end(), {1, 2, 9});
  }
  prompt.push_back(1);
  for (const int most : {1, 3, 7}) {
    Engine engine([] { return std::make_unique<FakeModel>(32); }, drafting(most));
    TokenStream stream = engine.submit(prompt, greedy(50));
    EXPECT_EQ(collect(stream), count_up(2, 50));
    EXPECT_LT(stream.stats().accepted_tokens, stream.stats().drafted_tokens);
  }
}

TEST(Speculation, ADraftModelOfAnotherVocabularyIsRefused) {
  EngineOptions options = drafting(4);
  options.draft_model = [] { return std::make_unique<FakeModel>(16); };
  EXPECT_THROW(Engine([] { return std::make_unique<FakeModel>(32); }, options), UserError);
  options.draft_tokens = -1;
  EXPECT_THROW(Engine([] { return std::make_unique<FakeModel>(32); }, options), UserError);
}

// Answers of several clients come in full whenever it fails, with drafts under way or not.
TEST(Speculation, ADraftModelThatFailsIsLeft) {
  for (const int rows : {0, 50, 90, 131}) {
    const auto log = std::make_shared<FakeModelLog>();
    log->fail_at_row = rows;
    EngineOptions options = drafting(3);
    options.draft_model = [log] { return std::make_unique<FakeModel>(32, log); };
    Engine engine([] { return std::make_unique<FakeModel>(32); }, options);
    std::vector<TokenStream> streams;
    for (int i = 0; i < 3; ++i) {
      streams.push_back(engine.submit(count_up(i, 10 + i), greedy(60)));
    }
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(collect(streams[static_cast<size_t>(i)]), count_up(10 + 2 * i, 60)) << rows;
    }
  }
}

struct Setting {
  std::string model;
  KernelSet kernels = KernelSet::native;
  std::string draft = "";  // empty: texts are looked up
  std::optional<int> max_size = std::nullopt;
};

class SpeculationOnGraphs : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    skip_if_not_for_this_build({GetParam().model, GetParam().kernels, {}, {}});
  }
  std::unique_ptr<Engine> make_engine(int draft_tokens) const {
    EngineOptions options = drafting(draft_tokens);
    options.context_length = 600;
    options.cache.max_size = GetParam().max_size;
    options.cache.keep = 2;
    if (!GetParam().draft.empty()) {
      options.draft_model = [setting = GetParam()] {
        return load_model(load_golden(setting.draft).files(), load_options(setting.kernels));
      };
    }
    return std::make_unique<Engine>(
        [setting = GetParam()] {
          return load_model(load_golden(setting.model).files(), load_options(setting.kernels));
        },
        options);
  }
};

// Prompts in which parts come again, so that there is something to look up.
std::vector<std::vector<int32_t>> prompts(int vocab, int count) {
  std::mt19937 random(5);
  std::vector<std::vector<int32_t>> all;
  for (int i = 0; i < count; ++i) {
    std::vector<int32_t> piece;
    for (unsigned n = 3 + random() % 20; n > 0; --n) {
      piece.push_back(static_cast<int32_t>(random() % static_cast<unsigned>(vocab)));
    }
    std::vector<int32_t> prompt;
    while (prompt.size() < 60) {
      prompt.insert(prompt.end(), piece.begin(), piece.end());
      prompt.push_back(static_cast<int32_t>(random() % static_cast<unsigned>(vocab)));
    }
    all.push_back(std::move(prompt));
  }
  return all;
}

std::vector<std::vector<int32_t>> answers(
    Engine& engine, const std::vector<std::vector<int32_t>>& all, const SamplingParams& params) {
  std::vector<TokenStream> streams;
  for (const auto& prompt : all) {
    streams.push_back(engine.submit(prompt, params));
  }
  std::vector<std::vector<int32_t>> out;
  for (TokenStream& stream : streams) {
    out.push_back(collect(stream));
  }
  return out;
}

TEST_P(SpeculationOnGraphs, AnswersAreTheSame) {
  const auto plain = make_engine(0);
  const auto drafted = make_engine(5);
  const auto all = prompts(plain->info().vocab_size, 8);
  SamplingParams sampled = unfiltered();
  sampled.seed = 11;
  sampled.max_tokens = 40;
  sampled.repetition_penalty = 1.1f;
  sampled.frequency_penalty = 0.2f;
  for (const SamplingParams& params : {greedy(60), sampled}) {
    // One by one: then even the last bits of logits are the same.
    for (const auto& prompt : all) {
      EXPECT_EQ(answers(*drafted, {prompt}, params), answers(*plain, {prompt}, params));
    }
    // Together, some preempted or ended in the middle of a draft.
    EXPECT_EQ(answers(*drafted, all, params).size(), all.size());
  }
  const EngineStats stats = drafted->stats();
  EXPECT_GT(stats.drafted_tokens, 0);
  EXPECT_GT(stats.accepted_tokens, 0);
  EXPECT_LE(stats.accepted_tokens, stats.drafted_tokens);
  if (GetParam().draft == GetParam().model) {
    EXPECT_GT(stats.accepted_tokens, stats.drafted_tokens / 6);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Graphs,
    SpeculationOnGraphs,
    testing::Values(
        Setting{"llama"},
        Setting{"gemma3"},
        Setting{"qwen3", KernelSet::native, "", 64},
        Setting{"llama", KernelSet::native, "llama"},
        Setting{"gemma3", KernelSet::native, "gemma3"},
        Setting{"llama", KernelSet::mlx},
        Setting{"gemma3", KernelSet::mlx, "gemma3"}));

}  // namespace
}  // namespace quince::test
