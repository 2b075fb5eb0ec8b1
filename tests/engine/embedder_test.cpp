// Vectors of texts, against transformers' last hidden states.
#include "engine/embedder.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/engine.h"
#include "models/tiny_model.h"
#include "sanitizers/build.h"

namespace quince::test {

namespace {

constexpr float kTolerance = 1e-4f;

struct Case {
  std::string golden;
  KernelSet kernels;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.golden << (c.kernels == KernelSet::mlx ? " mlx" : " native");
}

class EmbedderTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (kThreadSanitizer && GetParam().kernels == KernelSet::mlx) {
      GTEST_SKIP() << "all that libmlx and its BLAS order looks like races there";
    }
    golden_ = load_golden(GetParam().golden);
    states_ = read_floats(golden_folder() / (golden_.name + ".states"));
    width_ = static_cast<size_t>(golden_.config.at("hidden_size").as_int64());
    ASSERT_EQ(states_.size(), golden_.tokens.size() * width_);
  }

  std::unique_ptr<Model> model() const {
    return load_model(golden_.files(), load_options(GetParam().kernels));
  }
  CacheOptions cache() const {
    CacheOptions options;
    options.keys = options.values = KvFormat::f32;
    return options;
  }
  // The first `count` tokens of the golden.
  std::vector<int32_t> text(size_t count) const {
    return {golden_.tokens.begin(), golden_.tokens.begin() + static_cast<std::ptrdiff_t>(count)};
  }
  std::vector<float> want(size_t count, Pooling pooling) const {
    std::vector<float> out(width_);
    const size_t first = pooling == Pooling::last ? count - 1 : 0;
    for (size_t row = first; row < count; ++row) {
      for (size_t i = 0; i < width_; ++i) {
        out[i] += states_[row * width_ + i] / static_cast<float>(count - first);
      }
    }
    return out;
  }

  Golden golden_;
  std::vector<float> states_;
  size_t width_ = 0;
};

TEST_P(EmbedderTest, AnyLengthsInAnyPieces) {
  const auto model = this->model();
  const std::vector<size_t> lengths{1, 7, 40, 2, 33, 1};
  for (const int chunk : {1, 3, 8, 50, 512}) {
    Embedder embedder(*model, cache());
    std::vector<std::shared_ptr<EmbeddingJob>> jobs;
    for (const Pooling pooling : {Pooling::last, Pooling::mean}) {
      std::vector<std::vector<int32_t>> texts;
      for (const size_t length : lengths) {
        texts.push_back(text(length));
      }
      jobs.push_back(std::make_shared<EmbeddingJob>(texts, pooling));
      embedder.add(jobs.back());
    }
    int ended = 0;
    int steps = 0;
    while (!embedder.idle()) {
      ended += embedder.step(chunk);
      ++steps;
    }
    EXPECT_EQ(ended, 2);
    EXPECT_EQ(steps, (168 + chunk - 1) / chunk);  // each is as full as can be
    for (const auto& job : jobs) {
      ASSERT_TRUE(job->ready());
      const auto vectors = job->take();
      ASSERT_EQ(vectors.size(), lengths.size());
      for (size_t i = 0; i < lengths.size(); ++i) {
        EXPECT_LT(largest_difference(vectors[i], want(lengths[i], job->pooling())), kTolerance)
            << chunk << " " << lengths[i];
      }
    }
  }
}

TEST_P(EmbedderTest, ThroughTheEngineBesideWhatIsGenerated) {
  EngineOptions options;
  options.cache = cache();
  options.prefill_chunk = 16;
  Engine engine([this] { return model(); }, options);
  SamplingParams endless;
  endless.max_tokens = 20;
  TokenStream stream = engine.submit(text(9), endless);
  std::vector<std::shared_ptr<EmbeddingJob>> jobs;
  for (size_t length = 1; length <= 40; ++length) {
    jobs.push_back(engine.embed({text(length), text(41 - length)}, Pooling::last));
  }
  int tokens = 0;
  while (stream.next()) {
    ++tokens;
  }
  EXPECT_EQ(tokens, 20);
  engine.drain();
  for (size_t length = 1; length <= 40; ++length) {
    ASSERT_TRUE(jobs[length - 1]->ready());
    const auto vectors = jobs[length - 1]->take();
    EXPECT_LT(largest_difference(vectors.at(0), want(length, Pooling::last)), kTolerance);
    EXPECT_LT(largest_difference(vectors.at(1), want(41 - length, Pooling::last)), kTolerance);
  }
  EXPECT_THROW(engine.embed({text(1)}, Pooling::last), BusyError);
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const char* golden : {"llama", "qwen3", "gemma3"}) {
    out.push_back({golden, KernelSet::mlx});
    out.push_back({golden, KernelSet::native});
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(All, EmbedderTest, testing::ValuesIn(cases()));

TEST(Embed, WhatCannotBe) {
  const Golden golden = load_golden("llama");
  Engine engine(
      [&] { return load_model(golden.files(), load_options(KernelSet::native)); }, EngineOptions());
  EXPECT_THROW(engine.embed({}, Pooling::last), UserError);
  EXPECT_THROW(engine.embed({{1}, {}}, Pooling::last), UserError);
  EXPECT_THROW(engine.embed({{1, 128}}, Pooling::last), UserError);
  EXPECT_THROW(engine.embed({{-1}}, Pooling::last), UserError);
  EXPECT_THROW(engine.embed({std::vector<int32_t>(65, 1)}, Pooling::last), UserError);
  EXPECT_EQ(engine.embed({std::vector<int32_t>(64, 1)}, Pooling::last)->inputs().size(), 1u);
}

// The engine ends with work undone, and nobody waits for ever.
TEST(Embed, AnEngineThatEnds) {
  const Golden golden = load_golden("llama");
  std::shared_ptr<EmbeddingJob> job;
  int notified = 0;
  {
    EngineOptions options;
    options.prefill_chunk = 1;
    Engine engine(
        [&] { return load_model(golden.files(), load_options(KernelSet::native)); }, options);
    job = engine.embed(
        std::vector<std::vector<int32_t>>(500, std::vector<int32_t>(64, 1)), Pooling::mean);
    job->on_ready([&] { ++notified; });
  }
  ASSERT_TRUE(job->ready());
  EXPECT_EQ(notified, 1);
  EXPECT_THROW(job->take(), BusyError);
}

TEST(Embed, ACancelledJobEndsAtOnce) {
  const Golden golden = load_golden("llama");
  EngineOptions options;
  options.prefill_chunk = 1;
  Engine engine(
      [&] { return load_model(golden.files(), load_options(KernelSet::native)); }, options);
  const auto job = engine.embed(
      std::vector<std::vector<int32_t>>(500, std::vector<int32_t>(64, 1)), Pooling::mean);
  const auto next = engine.embed({{1, 2}}, Pooling::mean);
  job->cancel();
  const auto begin = std::chrono::steady_clock::now();
  engine.drain();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_EQ(next->take().size(), 1u);
}

}  // namespace

}  // namespace quince::test
