// A prompt that is computed, written to a file, and gone on from, answers as if it had been run.
#include <functional>
#include <random>
#include <utility>

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "cache/prompt_cache_file.h"
#include "engine/settings.h"
#include "weights/files.h"

namespace quince::test {
namespace {

using testing::HasSubstr;

class PromptCache : public testing::TestWithParam<CacheSetting> {
 protected:
  void SetUp() override {
    skip_if_not_for_this_build(GetParam());
  }
};

std::vector<int32_t> joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<int32_t> go_on(
    Engine& engine,
    std::shared_ptr<const PromptPrefix> prefix,
    const std::vector<int32_t>& prompt,
    int count) {
  RequestOptions how;
  how.prefix = std::move(prefix);
  TokenStream stream = engine.submit(prompt, greedy(count), how);
  std::vector<int32_t> out = collect(stream);
  EXPECT_EQ(stream.stats().cached_tokens, how.prefix ? how.prefix->length() : 0);
  return out;
}

TEST_P(PromptCache, GoesOnAsIfItHadBeenRun) {
  const TempFolder folder;
  std::mt19937 random(1);
  EngineOptions options;
  const auto writer = make_engine(GetParam(), options);
  const auto reader = make_engine(GetParam(), options);
  const bool rings = GetParam().max_size && GetParam().kernels == KernelSet::mlx;
  for (const size_t size : {1, 31, 64, 85, 130}) {
    const auto prompt = random_tokens(random, size, 128);
    if (rings && size > 90) {
      // Written at most while nothing has been overwritten, and not gone on from.
      EXPECT_THROW(
          {
            writer->save_prompt(prompt, folder / "c", "m");
            reader->load_prompt(folder / "c");
          },
          UserError);
      continue;
    }
    writer->save_prompt(prompt, folder / "c", "m");
    const PromptCacheFile file = open_prompt_cache(folder / "c");
    EXPECT_EQ(file.tokens, prompt);
    const auto prefix = reader->load_prompt(folder / "c");
    EXPECT_TRUE(prefix->notes.empty());
    for (const size_t more : {1, 5, 40}) {
      const auto rest = random_tokens(random, more, 128);
      // As in memory: the same keys and values, the same way on.
      EXPECT_EQ(go_on(*reader, prefix, rest, 15), ask(*writer, joined(prompt, rest), 15))
          << size << " and " << more;
    }
  }
}

// Brought back into what all share: whoever begins with these tokens goes on from them.
TEST_P(PromptCache, IsKnownToAllWhoBeginWithIt) {
  const TempFolder folder;
  std::mt19937 random(6);
  const auto writer = make_engine(GetParam(), {});
  for (const size_t size : {1, 31, 64, 85, 130, 200}) {
    const auto prompt = random_tokens(random, size, 128);
    const auto reader = make_engine(GetParam(), {});
    if (!shares_after_rotation(GetParam()) && size > 85) {  // rings that have turned
      EXPECT_THROW(
          {
            writer->save_prompt(prompt, folder / "c", "m", PrefixUse::shared);
            reader->restore_prompt(folder / "c");
          },
          UserError);
      continue;
    }
    writer->save_prompt(prompt, folder / "c", "m", PrefixUse::shared);
    EXPECT_EQ(reader->restore_prompt(folder / "c"), prompt);
    EXPECT_EQ(reader->stats().kept_tokens, static_cast<int64_t>((size + 31) / 32 * 32));
    const auto rest = random_tokens(random, 9, 128);
    for (const auto& whole : {joined(prompt, rest), prompt}) {
      TokenStream stream = reader->submit(whole, greedy(15));
      EXPECT_EQ(collect(stream), ask(*writer, whole, 15)) << size;
      if (whole.size() > size || shares_after_rotation(GetParam())) {  // the first, or all
        EXPECT_EQ(stream.stats().cached_tokens, static_cast<int>(std::min(size, whole.size() - 1)));
      }
    }
    // One that parts from it earlier, in the middle of a page.
    std::vector<int32_t> other(prompt.begin(), prompt.begin() + static_cast<int64_t>(size / 2));
    other.push_back((prompt[size / 2] + 1) % 128);
    EXPECT_EQ(ask(*reader, other, 15), ask(*writer, other, 15, false)) << size;
    EXPECT_EQ(reader->stats().kv_tokens, 0);
  }
}

TEST_P(PromptCache, IsForgottenWhereNothingElseGoesOnFromIt) {
  std::mt19937 random(7);
  const auto engine = make_engine(GetParam(), {});
  const auto common = random_tokens(random, 40, 128);
  const auto a = joined(common, random_tokens(random, 20, 128));
  const auto b = joined(common, random_tokens(random, 21, 128));
  const auto run = [&](const std::vector<int32_t>& prompt) {
    TokenStream stream = engine->submit(prompt, greedy(3));
    const auto whole = joined(prompt, collect(stream));
    return std::pair(whole, stream.stats().cached_tokens);
  };
  const auto cached = [&](const std::vector<int32_t>& prompt) { return run(prompt).second; };
  const auto with_answer = [&](const std::vector<int32_t>& prompt) { return run(prompt).first; };
  const auto whole_a = with_answer(a);
  const auto whole_b = with_answer(b);
  EXPECT_EQ(cached(a), 59);
  engine->forget_prompt(a);  // the answer goes on from it
  EXPECT_EQ(cached(a), 59);
  engine->forget_prompt(whole_a);
  EXPECT_EQ(cached(b), 60);
  EXPECT_EQ(cached(a), 40);  // what b begins with too
  engine->forget_prompt(whole_a, 32);
  engine->forget_prompt(whole_b, 32);
  EXPECT_EQ(cached(b), 32);
  engine->forget_prompt(joined(whole_b, {1, 2, 3}));
  EXPECT_EQ(engine->stats().kept_tokens, 0);
  EXPECT_EQ(cached(b), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Models, PromptCache, testing::ValuesIn(cache_settings()), [](const auto& info) {
      return cache_setting_name(info.param);
    });

TEST(PromptCacheFiles, GoFromOneKindOfCacheToAnother) {
  const TempFolder folder;
  std::mt19937 random(2);
  const auto prompt = random_tokens(random, 100, 128);
  const auto rest = random_tokens(random, 7, 128);
  for (const std::string model : {"llama", "gemma3"}) {
    const CacheSetting native{model, KernelSet::native, {}, {}};
    const CacheSetting composed{model, KernelSet::mlx, {}, {}};
    if (!for_this_build(composed)) {
      GTEST_SKIP();
    }
    CacheSetting exact = native;
    exact.format = KvFormat::f32;
    const auto a = make_engine(exact, {});
    const auto b = make_engine(composed, {});
    const auto answer = ask(*b, joined(prompt, rest), 15);
    a->save_prompt(prompt, folder / "a", "m");
    EXPECT_EQ(go_on(*b, b->load_prompt(folder / "a"), rest, 15), answer) << model;
    b->save_prompt(prompt, folder / "b", "m");
    EXPECT_EQ(go_on(*a, a->load_prompt(folder / "b"), rest, 15), answer) << model;
  }
}

// CTX-06.
TEST(PromptCacheFiles, OfOtherModelsOrShapesAreRefused) {
  const TempFolder folder;
  std::mt19937 random(3);
  const auto prompt = random_tokens(random, 100, 128);
  const auto llama = make_engine({"llama", KernelSet::native, {}, {}}, {});
  const auto gemma = make_engine({"gemma3", KernelSet::native, {}, {}}, {});
  llama->save_prompt(prompt, folder / "llama", "m");
  const auto refusal = [](const auto& act) {
    try {
      act();
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("not refused");
  };
  EXPECT_THAT(
      refusal([&] { gemma->load_prompt(folder / "llama"); }), HasSubstr("of another model"));
  EXPECT_THAT(refusal([&] { llama->load_prompt(folder / "none"); }), HasSubstr("cannot open"));
  EngineOptions chunks;  // what windows have passed is given up between steps
  chunks.prefill_chunk = 32;
  const auto rotating = make_engine({"llama", KernelSet::native, 60, {}}, chunks);
  const auto longer = random_tokens(random, 300, 128);
  rotating->save_prompt(longer, folder / "ring", "m");
  EXPECT_THAT(refusal([&] { rotating->restore_prompt(folder / "ring"); }), HasSubstr("300 tokens"));
  EXPECT_THROW(
      rotating->save_prompt(longer, folder / "shared", "m", PrefixUse::shared), ForgottenError);
  EXPECT_FALSE(std::filesystem::exists(folder / "shared"));
  EXPECT_THAT(refusal([&] { llama->load_prompt(folder / "ring"); }), HasSubstr("--max-kv-size 60"));
  // A file that names no model: taken when it fits, and said.
  std::string anonymous = read_file(folder / "llama");
  for (size_t at; (at = anonymous.find("0.quince_")) != std::string::npos;) {
    anonymous.replace(at, 9, "0.xxxxxx_");
  }
  folder.write("anonymous", anonymous);
  const auto prefix = llama->load_prompt(folder / "anonymous");
  ASSERT_EQ(prefix->notes.size(), 1u);
  EXPECT_THAT(prefix->notes[0], HasSubstr("does not name its model"));
  EXPECT_FALSE(prefix->tokens_known);
  const auto rest = random_tokens(random, 5, 128);
  EXPECT_EQ(go_on(*llama, prefix, rest, 10), ask(*llama, joined(prompt, rest), 10));
  EXPECT_THAT(
      refusal([&] { gemma->load_prompt(folder / "anonymous"); }),
      testing::AnyOf(HasSubstr("layers with"), HasSubstr("is not in it")));
  // The context counts what came before.
  EXPECT_THAT(
      refusal([&] { go_on(*llama, prefix, random_tokens(random, 590, 128), 1); }),
      HasSubstr("690 tokens"));
}

// The same model, computed in another way: what differs is said, and what to do.
TEST(PromptCacheFiles, OfAnotherWayToCompute) {
  const TempFolder folder;
  std::mt19937 random(5);
  const auto prompt = random_tokens(random, 40, 128);
  const CacheSetting llama{"llama", KernelSet::native, {}, {}};
  const auto engine_with = [&](const std::function<void(LoadOptions&)>& change) {
    EngineOptions options;
    options.context_length = 600;
    return std::make_unique<Engine>(
        [&] {
          LoadOptions load = load_options(KernelSet::native);
          change(load);
          return load_model(golden_for(llama).files(), load);
        },
        options);
  };
  const auto plain = engine_with([](LoadOptions&) {});
  const auto invariant = engine_with([](LoadOptions& load) { load.batch_invariant = true; });
  plain->save_prompt(prompt, folder / "plain", "m");
  invariant->save_prompt(prompt, folder / "invariant", "m");
  const auto refusal = [&](Engine& engine, const std::string& name) {
    try {
      engine.load_prompt(folder / name);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("not refused");
  };
  EXPECT_THAT(
      refusal(*invariant, "plain"),
      HasSubstr("made without --deterministic and is loaded with it"));
  EXPECT_THAT(refusal(*invariant, "plain"), HasSubstr("start without it, or make the file again"));
  EXPECT_THAT(
      refusal(*plain, "invariant"),
      HasSubstr("made with --deterministic and is loaded without it"));
  EXPECT_EQ(refusal(*plain, "plain"), "not refused");
  EXPECT_EQ(refusal(*invariant, "invariant"), "not refused");
}

TEST(PromptCacheFiles, AreNotSharedWhereTheyCannotBe) {
  const TempFolder folder;
  std::mt19937 random(8);
  const auto prompt = random_tokens(random, 100, 128);
  const CacheSetting llama{"llama", KernelSet::native, {}, {}};
  const auto writer = make_engine(llama, {});
  writer->save_prompt(prompt, folder / "c", "m");
  const auto refusal = [&](Engine& engine, const std::string& name) {
    try {
      engine.restore_prompt(folder / name);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("not refused");
  };
  EngineOptions little;
  little.kept_bytes = writer->stats().page_bytes * 2;
  EXPECT_THAT(
      refusal(*make_engine(llama, little), "c"),
      HasSubstr("of its 100 tokens there is room for 64"));
  EXPECT_THAT(refusal(*writer, "none"), HasSubstr("cannot open"));
  const auto gemma = make_engine({"gemma3", KernelSet::native, {}, {}}, {});
  EXPECT_THAT(refusal(*gemma, "c"), HasSubstr("of another model"));
  const std::string bytes = read_file(folder / "c");
  folder.write("half", bytes.substr(0, bytes.size() / 2));
  EXPECT_THAT(refusal(*writer, "half"), HasSubstr("half"));
  std::string anonymous = bytes;
  for (size_t at; (at = anonymous.find("0.quince_")) != std::string::npos;) {
    anonymous.replace(at, 9, "0.xxxxxx_");
  }
  folder.write("anonymous", anonymous);
  EXPECT_THAT(refusal(*writer, "anonymous"), HasSubstr("does not name its tokens"));
  const CacheSetting rings{"llama", KernelSet::native, 60, {}};
  const auto rotating = make_engine(rings, {});
  EXPECT_THAT(refusal(*rotating, "c"), HasSubstr("--max-kv-size that it was made with"));
  EXPECT_EQ(rotating->stats().kept_tokens, 0);
  EXPECT_EQ(ask(*rotating, prompt, 10), ask(*make_engine(rings, {}), prompt, 10));
  // Whatever was refused, answers stay right.
  EXPECT_EQ(ask(*writer, prompt, 10), ask(*make_engine(llama, {}), prompt, 10));
}

// It is as if someone had computed it: while others run, and among what has to make room.
TEST(PromptCacheFiles, ComeBackWhileOthersRun) {
  const TempFolder folder;
  std::mt19937 random(9);
  const CacheSetting gemma{"gemma3", KernelSet::native, {}, {}};
  const auto alone = make_engine(gemma, {});
  EngineOptions options;
  options.kv_tokens = 32 * 30;
  options.max_running = 3;
  const auto engine = make_engine(gemma, options);
  std::vector<std::vector<int32_t>> prompts;
  for (int i = 0; i < 4; ++i) {
    prompts.push_back(random_tokens(random, 60 + random() % 60, 128));
    alone->save_prompt(prompts.back(), folder / std::to_string(i), "m");
  }
  for (int round = 0; round < 3; ++round) {
    std::vector<TokenStream> streams;
    for (const auto& prompt : prompts) {
      streams.push_back(engine->submit(prompt, greedy(40)));
    }
    for (int i = 0; i < 4; ++i) {
      engine->restore_prompt(folder / std::to_string(i));
      engine->forget_prompt(prompts[random() % 4], 32);
    }
    for (size_t i = 0; i < streams.size(); ++i) {
      EXPECT_EQ(collect(streams[i]), ask(*alone, prompts[i], 40, false)) << round << " " << i;
    }
  }
  EXPECT_EQ(engine->stats().kv_tokens, 0);
}

// Steps that ask for no logits, of a model whose head is quantized.
TEST(PromptCacheFiles, QuantizedModelsRunPromptsInChunks) {
  const CacheSetting composed{"llama", KernelSet::mlx, {}, {}};
  if (!for_this_build(composed)) {
    GTEST_SKIP();
  }
  const TempFolder folder;
  std::mt19937 random(5);
  const auto prompt = random_tokens(random, 70, 128);
  const auto make = [](int chunk) {
    EngineOptions options;
    options.prefill_chunk = chunk;
    options.context_length = 600;
    return std::make_unique<Engine>(
        [] {
          return load_model(
              quantized_files(load_golden("llama"), 4, 32), load_options(KernelSet::mlx));
        },
        options);
  };
  const auto engine = make(16);
  EXPECT_EQ(ask(*engine, prompt, 10, false), ask(*make(512), prompt, 10, false));
  engine->save_prompt(prompt, folder / "c", "m");
  const auto rest = random_tokens(random, 5, 128);
  EXPECT_EQ(
      go_on(*engine, engine->load_prompt(folder / "c"), rest, 10),
      ask(*engine, joined(prompt, rest), 10));
}

// Preempted and begun again, each goes on from its prefix.
TEST(PromptCacheFiles, OutliveAPreemption) {
  const TempFolder folder;
  std::mt19937 random(4);
  const CacheSetting llama{"llama", KernelSet::native, {}, {}};
  const auto prompt = random_tokens(random, 90, 128);
  const auto alone = make_engine(llama, {});
  alone->save_prompt(prompt, folder / "c", "m");
  EngineOptions options;
  options.kv_tokens = 32 * 9;
  const auto engine = make_engine(llama, options);
  const auto prefix = engine->load_prompt(folder / "c");
  std::vector<std::vector<int32_t>> rests;
  std::vector<TokenStream> streams;
  for (int i = 0; i < 6; ++i) {
    rests.push_back(random_tokens(random, 3 + random() % 20, 128));
    RequestOptions how;
    how.prefix = prefix;
    streams.push_back(engine->submit(rests.back(), greedy(60), how));
  }
  for (size_t i = 0; i < streams.size(); ++i) {
    EXPECT_EQ(collect(streams[i]), ask(*alone, joined(prompt, rests[i]), 60)) << i;
  }
  EXPECT_GT(engine->stats().preemptions, 0);
}

}  // namespace
}  // namespace quince::test
