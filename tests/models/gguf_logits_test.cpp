// GGUF files of the tiny models, opened as a user would, against transformers' logits over the same
// numbers (golden/make_gguf.py).
#include <cmath>

#include <gmock/gmock-matchers.h>

#include "models/tiny_model.h"
#include "weights/model_files.h"

namespace quince::test {
namespace {

struct GgufCase {
  const char* file;
  const char* tokens_of;  // the golden whose tokens were used
  bool dense;             // plain numbers: native kernels keep f32 activations for f32 matrices
};

void PrintTo(const GgufCase& c, std::ostream* out) {
  *out << c.file;
}

class GgufLogits : public testing::TestWithParam<GgufCase> {
 protected:
  void SetUp() override {
    const GgufCase& c = GetParam();
    path_ = (golden_folder() / (std::string(c.file) + ".gguf")).string();
    tokens_ = load_golden(c.tokens_of).tokens;
    want_ = read_floats(path_ + ".f32");
  }
  std::vector<float> run(const LoadOptions& options, size_t chunk) const {
    const auto model = load_model(open_model(path_), options);
    CacheOptions cache_options;
    cache_options.keys = cache_options.values = KvFormat::f32;
    const auto cache = model->make_cache(cache_options);
    return append_chunks(*model, *cache, tokens_, chunk);
  }
  std::string path_;
  std::vector<int32_t> tokens_;
  std::vector<float> want_;
};

TEST_P(GgufLogits, ComposedIsExact) {
  LoadOptions options = load_options(KernelSet::mlx);
  options.dtype = mlx::core::float32;
  EXPECT_LT(largest_difference(run(options, 40), want_), 1e-4f);
  EXPECT_LT(largest_difference(run(options, 1), want_), 1e-4f);
  options.dequantize = true;
  EXPECT_LT(largest_difference(run(options, 7), want_), 1e-4f);
}

TEST_P(GgufLogits, NativeIsNear) {
  const LoadOptions options = load_options(KernelSet::native);
  for (const size_t chunk : {40u, 1u}) {
    const std::vector<float> got = run(options, chunk);
    if (GetParam().dense) {
      EXPECT_LT(largest_difference(got, want_), 1e-4f);
      continue;
    }
    ASSERT_EQ(got.size(), want_.size());
    double difference = 0.0;
    double size = 0.0;
    for (size_t i = 0; i < got.size(); ++i) {
      difference += std::pow(got[i] - want_[i], 2.0);
      size += std::pow(want_[i], 2.0);
    }
    EXPECT_LT(std::sqrt(difference / size), 0.03) << "in chunks of " << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Files,
    GgufLogits,
    testing::Values(
        GgufCase{"llama", "llama", true},
        GgufCase{"llama3", "llama3", true},
        GgufCase{"qwen2", "qwen2", true},
        GgufCase{"qwen3", "qwen3", true},
        GgufCase{"gemma3", "gemma3", true},
        GgufCase{"llama_bias-F16", "llama_bias", false},
        GgufCase{"gemma3-BF16", "gemma3", false},
        GgufCase{"llama-Q4_0", "llama", false},
        GgufCase{"llama-Q5_1", "llama", false},
        GgufCase{"qwen3-Q8_0", "qwen3", false},
        GgufCase{"gemma3-Q4_1", "gemma3", false}),
    [](const auto& info) {
      std::string name = info.param.file;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

}  // namespace
}  // namespace quince::test
