// The model that repeats the most frequent token of what it sees: whatever page of keys and values
// is lost, mixed up or taken from somebody else changes an answer. QUINCE_SOAK_REQUESTS=10000 makes
// a long run of it.
#include <cstdlib>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "models/script_model.h"
#include "models/tiny_model.h"
#include "sanitizers/build.h"
#include "weights/files.h"
#include "weights/model_files.h"

namespace quince::test {
namespace {

constexpr int32_t kLetters[] = {266, 267, 268};

struct Question {
  std::vector<int32_t> prompt;
  int32_t answer = 0;  // repeated
};

// Begins as others of its family do. Its own letter leads by a fifth, so that codes of 8 bits do
// not change the answer.
Question make_question(std::mt19937& random, const std::vector<std::vector<int32_t>>& families) {
  Question question;
  const std::vector<int32_t>& family = families[random() % families.size()];
  const auto shared = static_cast<int64_t>(random() % (family.size() + 1));
  question.prompt.assign(family.begin(), family.begin() + shared);
  question.answer = kLetters[random() % 3];
  for (size_t n = 1 + random() % 40; n > 0; --n) {
    question.prompt.push_back(kLetters[random() % 3]);
  }
  const auto count = [&](int32_t letter) {
    return static_cast<int64_t>(std::count(question.prompt.begin(), question.prompt.end(), letter));
  };
  const auto others = [&] {
    int64_t most = 0;
    for (const int32_t letter : kLetters) {
      most = letter == question.answer ? most : std::max(most, count(letter));
    }
    return most;
  };
  while (count(question.answer) < others() + std::ssize(question.prompt) / 5 + 2) {
    question.prompt.push_back(question.answer);
  }
  return question;
}

struct SoakSetting {
  const char* name;
  std::optional<KvFormat> format;
  bool disk = false;  // memory for little of what has ended, the rest on the disk
  int drafts = 0;     // tokens guessed a step
};

class Soak : public testing::TestWithParam<SoakSetting> {};

TEST_P(Soak, SixtyFourClientsNeverGetAForeignToken) {
  TempFolder folder;
  write_script_model(folder / "m", Script::majority);
  EngineOptions options;
  options.max_running = 24;
  options.kv_tokens = 32 * 36;  // too little for 24: some are preempted
  options.prefill_chunk = 96;
  options.draft_tokens = GetParam().drafts;
  options.draft_always = true;
  options.cache.keys = options.cache.values = GetParam().format;
  if (GetParam().disk) {
    options.disk = {folder / "tier", 8 << 20};
    options.kept_bytes = 1 << 19;
  }
  options.pool = std::make_shared<ThreadPool>(2);
  Engine engine(
      [&] {
        LoadOptions load = load_options(KernelSet::native);
        load.pool = options.pool;
        return load_model(open_model((folder / "m").string()), load);
      },
      options);
  std::mt19937 random(5);
  std::vector<std::vector<int32_t>> families(6);
  for (std::vector<int32_t>& family : families) {
    family.push_back(kScriptBos);
    while (family.size() < 180) {
      family.push_back(kLetters[random() % 3]);
    }
  }
  const char* wanted = std::getenv("QUINCE_SOAK_REQUESTS");
  const int requests = wanted ? std::atoi(wanted) : kSanitized ? 500 : 1500;
  std::atomic<int> next = 0;
  std::atomic<int> foreign = 0;
  std::atomic<int> cut = 0;
  std::vector<std::thread> clients;
  for (unsigned client = 0; client < 64; ++client) {
    clients.emplace_back([&, client] {
      std::mt19937 dice(client);
      while (next++ < requests) {
        const Question question = make_question(dice, families);
        SamplingParams params;
        params.temperature = 0.0f;
        params.max_tokens = 1 + static_cast<int>(dice() % 40);
        const int cancel_at = dice() % 5 == 0 ? static_cast<int>(dice() % 30) : -1;
        RequestOptions how;
        how.priority = dice() % 10 == 0 ? 1 : 0;
        how.tenant = std::to_string(client % 5);
        TokenStream stream = engine.submit(question.prompt, params, how);
        int got = 0;
        while (const auto token = stream.next()) {
          foreign += token->id != question.answer;
          if (++got == cancel_at) {
            stream.cancel();
          }
        }
        cut += cancel_at < 0 && got != params.max_tokens;
      }
    });
  }
  for (std::thread& client : clients) {
    client.join();
  }
  EXPECT_EQ(foreign, 0);
  EXPECT_EQ(cut, 0);
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.kv_tokens, 0);
  EXPECT_GT(stats.preemptions, 0);
  EXPECT_GT(stats.prefix_hits, stats.prefix_queries / 4);
  EXPECT_EQ(stats.disk_read > 0, GetParam().disk);
  EXPECT_EQ(stats.accepted_tokens > 0, GetParam().drafts > 0);
  RecordProperty("preemptions", static_cast<int>(stats.preemptions));
}

INSTANTIATE_TEST_SUITE_P(
    Formats,
    Soak,
    testing::Values(
        SoakSetting{"natural", {}},
        SoakSetting{"q8", KvFormat::q8},
        SoakSetting{"disk", {}, true},
        SoakSetting{"drafts", KvFormat::q8, true, 3}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace quince::test
