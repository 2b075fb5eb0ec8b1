// What memory has no room for is read back from the disk, by this engine or by the next one, and
// answers stay what they would be without it: on real graphs, with full attention, windows and
// rotating caches, natively and composed.
#include <fstream>
#include <random>
#include <thread>

#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>

#include "cache/page_folder.h"
#include "engine/engine.h"
#include "engine/requests.h"
#include "engine/settings.h"
#include "weights/files.h"

namespace quince::test {
namespace {

namespace fs = std::filesystem;
using testing::IsEmpty;

struct Log {
  std::mutex mutex;
  std::vector<std::string> lines;
};

class DiskPages : public testing::TestWithParam<CacheSetting> {
 protected:
  void SetUp() override {
    skip_if_not_for_this_build(GetParam());
  }
  std::unique_ptr<Engine> make_engine(EngineOptions options = {}, bool disk = true) {
    if (disk) {
      options.disk.folder = folder_ / "tier";
      options.disk.bytes = cap_;
    }
    options.log = [log = log_](const std::string& line) {
      const std::scoped_lock lock(log->mutex);
      log->lines.push_back(line);
    };
    return quince::test::make_engine(GetParam(), options);
  }
  std::vector<fs::path> segments() const {
    std::vector<fs::path> found;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder_ / "tier")) {
      if (entry.path().extension() == ".safetensors") {
        found.push_back(entry.path());
      }
    }
    return found;
  }

  TempFolder folder_;
  uint64_t cap_ = 64 << 20;
  std::shared_ptr<Log> log_ = std::make_shared<Log>();
};

TEST_P(DiskPages, TheNextEngineGoesOnFromThem) {
  std::mt19937 random(1);
  std::vector<int32_t> prompt;
  std::vector<int32_t> answer;
  {
    const auto engine = make_engine();
    prompt = random_tokens(random, 80, engine->info().vocab_size);
    answer = ask(*engine, prompt, 30);
    engine->drain();
  }
  std::vector<int32_t> talk = prompt;
  talk.insert(talk.end(), answer.begin(), answer.end());
  const auto more = random_tokens(random, 11, 128);
  talk.insert(talk.end(), more.begin(), more.end());
  // One that has it all in memory says the same.
  const auto other_engine = make_engine({}, false);
  EXPECT_EQ(ask(*other_engine, prompt, 30), answer);
  const auto engine = make_engine();
  TokenStream stream = engine->submit(talk, greedy(20));
  EXPECT_EQ(collect(stream), ask(*other_engine, talk, 20));
  if (shares_after_rotation(GetParam())) {
    EXPECT_GE(stream.stats().cached_tokens, 80);
    EXPECT_GT(engine->stats().disk_read, 0);
  }
  // Another ending, in the middle of a page that was read.
  std::vector<int32_t> other(prompt.begin(), prompt.begin() + 50);
  other.push_back((prompt[50] + 1) % engine->info().vocab_size);
  EXPECT_EQ(ask(*engine, other, 10), ask(*other_engine, other, 10));
  EXPECT_THAT(log_->lines, IsEmpty());
}

TEST_P(DiskPages, ManyClientsWithLittleMemoryGetTheirLoneAnswers) {
  std::mt19937 random(2);
  const auto alone = make_engine({}, false);
  const int vocab = alone->info().vocab_size;
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::vector<int32_t>> answers;
  const std::vector<int32_t> common = random_tokens(random, 150, vocab);
  for (int i = 0; i < 16; ++i) {
    std::vector<int32_t> prompt(
        common.begin(), common.begin() + static_cast<int64_t>(random() % 151));
    const std::vector<int32_t> end = random_tokens(random, 1 + random() % 90, vocab);
    prompt.insert(prompt.end(), end.begin(), end.end());
    answers.push_back(ask(*alone, prompt, 20, false));
    prompts.push_back(std::move(prompt));
  }
  EngineOptions options;
  options.max_running = 5;
  options.kv_tokens = 32 * 30;
  options.kept_bytes = alone->stats().page_bytes * 6;
  options.prefill_chunk = 48;
  options.pool = std::make_shared<ThreadPool>(2);
  for (int life = 0; life < 2; ++life) {
    const auto engine = make_engine(options);
    std::atomic<int> wrong = 0;
    std::vector<std::thread> clients;
    for (unsigned client = 0; client < 6; ++client) {
      clients.emplace_back([&, client] {
        std::mt19937 dice(client + 10 * static_cast<unsigned>(life));
        for (int n = 0; n < 10; ++n) {
          const size_t which = dice() % prompts.size();
          const int cancel_at = dice() % 4 == 0 ? static_cast<int>(dice() % 20) : -1;
          TokenStream stream = engine->submit(prompts[which], greedy(20));
          size_t got = 0;
          while (const auto token = stream.next()) {
            wrong += token->id != answers[which][got];
            if (static_cast<int>(++got) == cancel_at) {
              stream.cancel();
            }
          }
          wrong += cancel_at < 0 && got != 20;
        }
      });
    }
    for (std::thread& client : clients) {
      client.join();
    }
    EXPECT_EQ(wrong, 0);
    engine->drain();
    EXPECT_EQ(engine->stats().kv_tokens, 0);
    EXPECT_GT(engine->stats().disk_pages, 0);
    EXPECT_TRUE(life == 0 || engine->stats().disk_read > 0);
  }
  EXPECT_THAT(log_->lines, IsEmpty());
}

TEST_P(DiskPages, DamageCostsTimeAndALine) {
  std::mt19937 random(3);
  std::vector<int32_t> prompt = random_tokens(random, 80, 128);
  std::vector<int32_t> answer;
  {
    const auto engine = make_engine();
    answer = ask(*engine, prompt, 10);
  }
  // One, or more where the pages came so slowly that a first few were written before the others.
  const std::vector<fs::path> damaged = segments();
  ASSERT_THAT(damaged, testing::Not(IsEmpty()));
  for (const fs::path& path : damaged) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    for (std::streamoff at = -100; at > -static_cast<std::streamoff>(fs::file_size(path) * 9 / 10);
         at -= 97) {
      file.seekp(at, std::ios::end);
      file.put('x');
    }
  }
  const auto engine = make_engine();
  EXPECT_EQ(ask(*engine, prompt, 10), answer);
  if (shares_after_rotation(GetParam())) {
    EXPECT_GE(log_->lines.size(), 1u);
    EXPECT_LE(log_->lines.size(), damaged.size());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, DiskPages, testing::ValuesIn(cache_settings()), [](const auto& info) {
      return cache_setting_name(info.param);
    });

// Two models in one folder never take each other's pages, and the cap holds for both.
TEST(DiskFolder, IsSharedByModels) {
  const TempFolder folder;
  const CacheSetting llama{"llama", KernelSet::native, {}, {}};
  CacheSetting coded = llama;
  coded.format = KvFormat::q8;
  if (!for_this_build(llama)) {
    GTEST_SKIP();
  }
  std::mt19937 random(4);
  const auto prompt = random_tokens(random, 100, 128);
  EngineOptions options;
  options.disk.folder = folder.path();
  options.disk.bytes = 1 << 20;
  for (const CacheSetting& setting :
       {llama, coded, CacheSetting{"gemma3", KernelSet::native, {}, {}}, llama, coded}) {
    const auto engine = make_engine(setting, options);
    TokenStream stream = engine->submit(prompt, greedy(5));
    const auto answer = collect(stream);
    EXPECT_EQ(answer, ask(*engine, prompt, 5, false));
    engine->drain();
    EXPECT_LE(PageFolder(folder.path(), {"", ""}, 1 << 20).bytes(), options.disk.bytes);
  }
  const auto engine = make_engine(llama, options);
  TokenStream stream = engine->submit(prompt, greedy(5));
  collect(stream);
  EXPECT_EQ(stream.stats().cached_tokens, 99);
}

// A budget in bytes: eviction first, then preemption, then a refusal with the numbers; nobody's
// answer changes, and each step up is said.
TEST(MemoryBudget, IsKeptRungByRung) {
  const CacheSetting llama{"llama", KernelSet::native, {}, {}};
  std::mt19937 random(8);
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::vector<int32_t>> answers;
  const auto alone = make_engine(llama, {});
  for (int i = 0; i < 12; ++i) {
    prompts.push_back(random_tokens(random, 60 + random() % 60, 128));
    answers.push_back(ask(*alone, prompts.back(), 40, false));
  }
  Log log;
  EngineOptions options;
  const size_t page = alone->stats().page_bytes;
  options.kv_bytes = page * 10 + 5;
  options.log = [&log](const std::string& line) {
    const std::scoped_lock lock(log.mutex);
    log.lines.push_back(line);
  };
  const auto engine = make_engine(llama, options);
  for (int i = 0; i < 6; ++i) {
    const auto which = static_cast<size_t>(i);
    EXPECT_EQ(ask(*engine, prompts[which], 40), answers[which]);
    EXPECT_LE(engine->stats().kept_tokens, 7 * kCachePage);
  }
  EXPECT_EQ(engine->stats().memory, Rung::evict);
  std::vector<TokenStream> streams;
  for (const auto& prompt : prompts) {
    streams.push_back(engine->submit(prompt, greedy(40)));
  }
  for (size_t i = 0; i < streams.size(); ++i) {
    EXPECT_EQ(collect(streams[i]), answers[i]);
  }
  EXPECT_EQ(engine->stats().memory, Rung::preempt);
  TokenStream large = engine->submit(random_tokens(random, 400, 128), greedy(40));
  try {
    collect(large);
    ADD_FAILURE() << "it does not fit";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("more than the 320 tokens of memory"));
  }
  EXPECT_EQ(engine->stats().refusals, 1);
  ASSERT_EQ(log.lines.size(), 4u);
  EXPECT_THAT(log.lines[0], testing::HasSubstr("holds 320 tokens, and the context 600"));
  EXPECT_THAT(log.lines[1], testing::HasSubstr("given up"));
  EXPECT_THAT(log.lines[2], testing::HasSubstr("wait for each other"));
  EXPECT_THAT(log.lines[3], testing::HasSubstr("refused"));
}

TEST(DiskFolder, ThatCannotBeMadeIsRefusedAtOnce) {
  const TempFolder folder;
  folder.write("file", "x");
  EngineOptions options;
  options.disk.folder = folder / "file";
  EXPECT_THROW(make_engine({"llama", KernelSet::native, {}, {}}, options), UserError);
}

}  // namespace
}  // namespace quince::test
