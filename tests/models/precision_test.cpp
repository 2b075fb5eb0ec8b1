// Rotating caches, 16-bit checkpoints and quantized ones, each near what it stands for.
#include <cmath>

#include <gmock/gmock-matchers.h>

#include "base/error.h"
#include "models/tiny_model.h"
#include "weights/model_files.h"

namespace quince::test {
namespace {

namespace mx = mlx::core;

constexpr KernelSet kBoth[] = {KernelSet::mlx, KernelSet::native};

double relative_error(const std::vector<float>& a, const std::vector<float>& want) {
  EXPECT_EQ(a.size(), want.size());
  double difference = 0.0;
  double size = 0.0;
  for (size_t i = 0; i < std::min(a.size(), want.size()); ++i) {
    difference += std::pow(a[i] - want[i], 2.0);
    size += std::pow(want[i], 2.0);
  }
  return std::isfinite(difference) ? std::sqrt(difference / size) : INFINITY;
}

std::unique_ptr<Model> load(
    ModelFiles files,
    KernelSet kernels,
    std::optional<mx::Dtype> dtype = {},
    bool dequantize = false) {
  LoadOptions options = load_options(kernels);
  options.dtype = dtype;
  options.dequantize = dequantize;
  return load_model(std::move(files), options);
}

std::vector<float> run(
    Model& model,
    const std::vector<int32_t>& tokens,
    size_t chunk,
    const CacheOptions& options = {}) {
  const auto cache = model.make_cache(options);
  return append_chunks(model, *cache, tokens, chunk);
}

// The checkpoint with its matrices rounded to 16 bits, as such and (f32) widened again.
std::pair<ModelFiles, ModelFiles> rounded(const Golden& golden, mx::Dtype dtype) {
  ModelFiles narrow = golden.files();
  ModelFiles wide = golden.files();
  for (size_t i = 0; i < narrow.tensors.size(); ++i) {
    const TensorView& t = wide.tensors[i];
    const mx::array exact(
        reinterpret_cast<const float*>(t.bytes.data()), {static_cast<int>(t.size())}, mx::float32);
    mx::array half = mx::astype(exact, dtype);
    mx::array back = mx::astype(half, mx::float32);
    mx::eval(half, back);
    const auto* data = half.data<std::byte>();
    narrow.tensors[i] = make_tensor(
        t.name,
        dtype == mx::float16 ? TensorType::f16 : TensorType::bf16,
        t.shape,
        {data, data + half.nbytes()});
    wide.tensors[i] =
        f32_tensor(t.name, t.shape, {back.data<float>(), back.data<float>() + back.size()});
  }
  return {narrow, wide};
}

TEST(Precision, RotatingCachesAgreeHoweverTheyAreFed) {
  for (const char* name : {"llama", "llama_bias", "qwen3", "mistral", "gemma3"}) {
    const Golden golden = load_golden(name);
    CacheOptions options;
    options.keys = options.values = KvFormat::f32;
    options.max_size = 16;
    options.keep = 4;
    const auto composed = load(golden.files(), KernelSet::mlx);
    const std::vector<float> want = run(*composed, golden.tokens, 1, options);
    const bool windowed = golden.config.contains("sliding_window");
    if (!windowed) {
      EXPECT_GT(largest_difference(want, golden.logits), 0.01f) << name;  // tokens were dropped
    }
    for (const KernelSet kernels : kBoth) {
      const auto model = load(golden.files(), kernels);
      for (const size_t chunk : {1u, 5u, 16u, 40u}) {
        EXPECT_LT(largest_difference(run(*model, golden.tokens, chunk, options), want), 1e-4f)
            << name << (kernels == KernelSet::mlx ? " mlx" : " native") << " in chunks of "
            << chunk;
      }
    }
  }
}

TEST(Precision, RotatingCachesStaySmallAndRefuseToTrim) {
  const Golden golden = load_golden("llama");
  for (const KernelSet kernels : kBoth) {
    const auto model = load(golden.files(), kernels);
    CacheOptions options;
    options.max_size = 16;
    const auto cache = model->make_cache(options);
    size_t bytes = 0;
    for (int i = 0; i < 300; ++i) {
      append(*model, *cache, {i % 128});
      if (i < 150) {
        bytes = std::max(bytes, cache->bytes());
      }
      EXPECT_LE(cache->bytes(), bytes);
    }
    EXPECT_EQ(cache->length(), 300);
    EXPECT_FALSE(cache->trim(200));
    EXPECT_EQ(cache->length(), 300);
    cache->clear();
    EXPECT_EQ(cache->length(), 0);
  }
}

TEST(Precision, SixteenBitCheckpoints) {
  for (const char* name : {"llama", "llama_bias", "qwen2", "qwen3", "gemma3"}) {
    for (const mx::Dtype dtype : {mx::bfloat16, mx::float16}) {
      const Golden golden = load_golden(name);
      const auto [narrow, wide] = rounded(golden, dtype);
      const std::vector<float> want = run(*load(wide, KernelSet::mlx), golden.tokens, 40);
      const double unit = dtype == mx::float16 ? 1.0 / 2048 : 1.0 / 256;
      const auto composed = load(narrow, KernelSet::mlx);
      EXPECT_LT(relative_error(run(*composed, golden.tokens, 40), want), 12 * unit) << name;
      EXPECT_LT(relative_error(run(*composed, golden.tokens, 1), want), 12 * unit) << name;
      // f32 activations over the same numbers: only the order of sums is left.
      const auto exact = load(narrow, KernelSet::mlx, mx::float32);
      EXPECT_LT(largest_difference(run(*exact, golden.tokens, 7), want), 1e-4f) << name;
      const auto native = load(narrow, KernelSet::native);
      EXPECT_LT(relative_error(run(*native, golden.tokens, 40), want), 12.0 / 256) << name;
      EXPECT_LT(relative_error(run(*native, golden.tokens, 1), want), 12.0 / 256) << name;
    }
  }
}

struct Packing {
  int bits;
  int group;
  double limit;  // of quantized against dense logits
};

TEST(Precision, QuantizedIsNearDenseAndExactlyItsOwnNumbers) {
  const Packing packings[] = {
      {8, 32, 0.02}, {6, 32, 0.06}, {5, 32, 0.12}, {4, 32, 0.25}, {3, 32, 0.5}, {2, 32, 1.1}};
  for (const char* name : {"llama", "qwen2", "qwen3", "gemma3"}) {
    const Golden golden = load_golden(name);
    for (const Packing& packing : packings) {
      const ModelFiles files = quantized_files(golden, packing.bits, packing.group);
      const std::string what = fmt::format("{} in {} bits", name, packing.bits);
      const std::vector<float> own =
          run(*load(files, KernelSet::mlx, mx::float32, true), golden.tokens, 40);
      EXPECT_LT(relative_error(own, golden.logits), packing.limit) << what;
      const auto composed = load(files, KernelSet::mlx);
      EXPECT_LT(largest_difference(run(*composed, golden.tokens, 9), own), 2e-4f) << what;
      const auto native = load(files, KernelSet::native);  // 8-bit activations
      EXPECT_LT(relative_error(run(*native, golden.tokens, 40), own), 0.03) << what;
      EXPECT_LT(relative_error(run(*native, golden.tokens, 1), own), 0.03) << what;
    }
  }
}

}  // namespace
}  // namespace quince::test
