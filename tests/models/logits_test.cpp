// Every architecture against transformers' f32 logits, in every way a sequence can be fed.
#include <gmock/gmock-more-matchers.h>

#include "base/error.h"
#include "models/tiny_model.h"

namespace quince::test {
namespace {

constexpr float kTolerance = 1e-4f;  // f32 logits of magnitude 1 to 17

struct Case {
  std::string golden;
  KernelSet kernels;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.golden << (c.kernels == KernelSet::mlx ? " mlx" : " native");
}

const char* const kGoldens[] = {
    "llama",
    "llama_bias",
    "llama3",
    "llama_linear",
    "llama_dynamic",
    "llama_yarn",
    "llama_yarn_mscale",
    "mistral",
    "qwen2",
    "qwen2_window",
    "qwen3",
    "qwen3_bias",
    "gemma3"};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const char* golden : kGoldens) {
    for (const KernelSet kernels : {KernelSet::mlx, KernelSet::native}) {
      cases.push_back({golden, kernels});
    }
  }
  return cases;
}

class Logits : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    golden_ = load_golden(GetParam().golden);
    model_ = load_model(golden_.files(), load_options(GetParam().kernels));
    options_.keys = options_.values = KvFormat::f32;
  }
  std::unique_ptr<Cache> cache() const {
    return model_->make_cache(options_);
  }
  // A rope that depends on the length of the text makes a run depend on how it is fed.
  bool depends_on_chunks() const {
    return !golden_.step_logits.empty();
  }
  std::vector<int32_t> tokens(size_t first, size_t count) const {
    const auto from = golden_.tokens.begin() + static_cast<int64_t>(first);
    return {from, from + static_cast<int64_t>(count)};
  }
  std::vector<float> golden_rows(size_t first, size_t count) const {
    const auto from = golden_.logits.begin() + static_cast<int64_t>(first) * golden_.vocab;
    return {from, from + static_cast<int64_t>(count) * golden_.vocab};
  }

  Golden golden_;
  std::unique_ptr<Model> model_;
  CacheOptions options_;
};

TEST_P(Logits, WholePromptAtOnce) {
  const auto c = cache();
  EXPECT_LT(largest_difference(append(*model_, *c, golden_.tokens), golden_.logits), kTolerance);
  EXPECT_EQ(c->length(), static_cast<int64_t>(golden_.tokens.size()));
  EXPECT_GT(c->bytes(), 0u);
}

TEST_P(Logits, InChunks) {
  for (const size_t chunk : {3u, 7u, 16u, 39u}) {
    if (depends_on_chunks()) {
      break;  // a golden for each chunk size would be needed
    }
    const auto c = cache();
    EXPECT_LT(
        largest_difference(append_chunks(*model_, *c, golden_.tokens, chunk), golden_.logits),
        kTolerance)
        << "chunks of " << chunk;
  }
}

TEST_P(Logits, StepByStep) {
  const auto c = cache();
  const std::vector<float>& want = depends_on_chunks() ? golden_.step_logits : golden_.logits;
  EXPECT_LT(largest_difference(append_chunks(*model_, *c, golden_.tokens, 1), want), kTolerance);
}

TEST_P(Logits, TrimAndGoOn) {
  const auto c = cache();
  if (depends_on_chunks()) {  // compare with a run that was never trimmed
    const auto other = cache();
    append(*model_, *c, tokens(0, 20));
    append(*model_, *other, tokens(0, 20));
    append(*model_, *other, {1, 2, 3, 4, 5});
    ASSERT_TRUE(other->trim(5));
    const auto want = append(*model_, *c, tokens(20, 10));
    EXPECT_LT(largest_difference(append(*model_, *other, tokens(20, 10)), want), kTolerance);
    return;
  }
  append(*model_, *c, tokens(0, 20));
  append(*model_, *c, {1, 2, 3, 4, 5});  // not the text
  ASSERT_TRUE(c->trim(5));
  EXPECT_EQ(c->length(), 20);
  EXPECT_LT(
      largest_difference(append(*model_, *c, tokens(20, 10)), golden_rows(20, 10)), kTolerance);
  ASSERT_TRUE(c->trim(30));
  EXPECT_EQ(c->length(), 0);
  EXPECT_LT(largest_difference(append(*model_, *c, golden_.tokens), golden_.logits), kTolerance);
  EXPECT_FALSE(c->trim(41));
  c->clear();
  EXPECT_EQ(c->length(), 0);
  EXPECT_LT(largest_difference(append(*model_, *c, golden_.tokens), golden_.logits), kTolerance);
}

// Sequences of different lengths in one batch: each as if alone.
struct BatchCase {
  std::vector<size_t> done;  // tokens in each cache before
  std::vector<size_t> fed;
};

// CTX-09.
TEST_P(Logits, EachSequenceOfABatchAsIfAlone) {
  const BatchCase batches[] = {
      {{0, 13, 25, 6}, {17, 1, 4, 1}},  // prefill beside decode
      {{4, 11, 15, 30}, {1, 1, 1, 1}},  // decode
      {{0, 0, 20}, {9, 9, 9}}};         // equal chunks
  for (const BatchCase& batch : batches) {
    std::vector<std::unique_ptr<Cache>> caches;
    std::vector<Segment> segments;
    std::vector<int32_t> rows;
    std::vector<float> want;
    for (size_t s = 0; s < batch.done.size(); ++s) {
      const auto alone = cache();
      caches.push_back(cache());
      if (batch.done[s] > 0) {
        append(*model_, *alone, tokens(0, batch.done[s]));
        append(*model_, *caches[s], tokens(0, batch.done[s]));
      }
      segments.push_back({caches[s].get(), static_cast<int>(batch.fed[s])});
      const auto more = tokens(batch.done[s], batch.fed[s]);
      rows.insert(rows.end(), more.begin(), more.end());
      const auto expected = append(*model_, *alone, more);
      want.insert(want.end(), expected.begin(), expected.end());
    }
    std::vector<int> all(rows.size());
    std::iota(all.begin(), all.end(), 0);
    const int n = static_cast<int>(rows.size());
    mlx::core::array out =
        model_->forward({mlx::core::array(rows.begin(), {n}, mlx::core::int32), segments, all});
    out.eval();
    EXPECT_LT(
        largest_difference({out.data<float>(), out.data<float>() + out.size()}, want), kTolerance);
  }
}

TEST_P(Logits, DecodingInABatchFollowsTheGolden) {
  const std::vector<size_t> done{4, 11, 15};
  std::vector<std::unique_ptr<Cache>> caches;
  std::vector<Segment> segments;
  for (const size_t length : done) {
    caches.push_back(cache());
    append_chunks(*model_, *caches.back(), tokens(0, length), 1);
    segments.push_back({caches.back().get(), 1});
  }
  const std::vector<float>& golden = depends_on_chunks() ? golden_.step_logits : golden_.logits;
  for (size_t step = 0; step < 15; ++step) {
    std::vector<int32_t> rows;
    std::vector<float> want;
    for (const size_t length : done) {
      rows.push_back(golden_.tokens[length + step]);
      const auto from = golden.begin() + static_cast<int64_t>(length + step) * golden_.vocab;
      want.insert(want.end(), from, from + golden_.vocab);
    }
    mlx::core::array out = model_->forward(
        {mlx::core::array(rows.begin(), {3}, mlx::core::int32), segments, {0, 1, 2}});
    out.eval();
    EXPECT_LT(
        largest_difference({out.data<float>(), out.data<float>() + out.size()}, want), kTolerance)
        << "step " << step;
  }
}

TEST_P(Logits, OnlyTheRowsAskedFor) {
  const auto c = cache();
  const int n = static_cast<int>(golden_.tokens.size());
  const std::vector<int> wanted{0, 5, 6, n - 1};
  mlx::core::array out = model_->forward(
      {mlx::core::array(golden_.tokens.begin(), {n}, mlx::core::int32), {{c.get(), n}}, wanted});
  out.eval();
  ASSERT_EQ(out.shape(), (mlx::core::Shape{4, golden_.vocab}));
  std::vector<float> want;
  for (const int row : wanted) {
    const auto expected = golden_rows(static_cast<size_t>(row), 1);
    want.insert(want.end(), expected.begin(), expected.end());
  }
  EXPECT_LT(
      largest_difference({out.data<float>(), out.data<float>() + out.size()}, want), kTolerance);
}

TEST_P(Logits, TokensOutsideTheVocabularyAreRefused) {
  const auto c = cache();
  for (const int32_t id : {-1, golden_.vocab, 1 << 30}) {
    EXPECT_THROW(append(*model_, *c, {1, id}), UserError) << id;
  }
  EXPECT_EQ(c->length(), 0);
}

TEST_P(Logits, InfoIsFilledIn) {
  const ModelInfo& info = model_->info();
  int64_t parameters = 0;
  for (const auto& item : golden_.shapes) {
    const auto shape = boost::json::value_to<std::vector<int64_t>>(item.value());
    parameters += std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  }
  EXPECT_EQ(info.parameters, parameters);
  EXPECT_EQ(info.vocab_size, golden_.vocab);
  EXPECT_EQ(info.layers, golden_.config.at("num_hidden_layers").as_int64());
  EXPECT_GE(info.weight_bytes, static_cast<size_t>(parameters) * 2);
  EXPECT_THAT(info.notes, testing::IsEmpty());
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  return info.param.golden + (info.param.kernels == KernelSet::mlx ? "_mlx" : "_native");
}

INSTANTIATE_TEST_SUITE_P(All, Logits, testing::ValuesIn(all_cases()), case_name);

}  // namespace
}  // namespace quince::test
