#include "nn/composed_attention.h"

#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include "nn/small_decoders.h"

namespace quince::test {
namespace {

namespace mx = mlx::core;
using kernels::KvType;

constexpr int kHeads = 6;
constexpr int kKvHeads = 2;
constexpr int kDim = 64;
constexpr float kScale = 0.125f;

mx::array random_array(const mx::Shape& shape, uint64_t seed) {
  return mx::random::normal(shape, mx::float32, 0.0f, 1.0f, mx::random::key(seed));
}

mx::array numbers_of(const KvCoding& coding, const KvPlanes& planes, size_t first) {
  return coding.coded() ? mx::dequantize(
                              planes[first],
                              planes[first + 1],
                              planes[first + 2],
                              coding.group(),
                              coding.bits())
                        : mx::astype(planes[first], mx::float32);
}

// Against MLX's own attention over the numbers that the codes stand for.
TEST(ComposedAttention, IsThatOfTheNumbersThatTheCodesStandFor) {
  const std::vector<std::optional<KvType>> formats{
      std::nullopt, KvType::f16, KvType::q8, KvType::q4};
  for (const auto& key_format : formats) {
    for (const auto& value_format : formats) {
      const KvCoding keys(mx::float32, key_format, kDim);
      const KvCoding values(mx::float32, value_format, kDim);
      for (const auto& [rows, visible] : {std::pair(1, 40), std::pair(7, 7), std::pair(5, 40)}) {
        for (const bool masked : {false, true}) {
          SCOPED_TRACE(keys.name() + ", " + values.name() + ", " + std::to_string(rows));
          const mx::array q = random_array({1, kHeads, rows, kDim}, 1);
          KvPlanes planes = keys.encode(random_array({1, kKvHeads, visible, kDim}, 2));
          const size_t of_keys = planes.size();
          for (const mx::array& p : values.encode(random_array({1, kKvHeads, visible, kDim}, 3))) {
            planes.push_back(p);
          }
          AttentionMask mask;
          if (masked) {  // each row misses something else
            mask = {"array", mx::random::bernoulli(0.7f, {rows, visible}, mx::random::key(4))};
          } else if (rows > 1) {
            mask.mode = "causal";
          }
          const mx::array got = attend(q, planes, keys, values, kScale, mask);
          const mx::array want = mx::fast::scaled_dot_product_attention(
              q,
              numbers_of(keys, planes, 0),
              numbers_of(values, planes, of_keys),
              kScale,
              masked ? "" : mask.mode,
              mask.array);
          ASSERT_EQ(got.shape(), want.shape());
          const float error = mx::max(mx::abs(mx::astype(got, mx::float32) - want)).item<float>();
          EXPECT_LT(error, 4e-3f);  // weights may be rounded to f16
        }
      }
    }
  }
}

// Windows, rotation, chunks: what is kept in codes stays close to what is kept whole, and does not
// depend on how the tokens came.
TEST(ComposedAttention, DecodersWithCodedCachesStayClose) {
  DecoderSpec spec = plain_spec();
  spec.head_dim = 64;
  spec.ropes[0].dims = 64;
  spec.ropes[0].inv_freq = plain_inv_freq(10000.0, 64);
  spec.attention_scale = kScale;
  spec.layers = {{0, 0}, {0, 20}, {0, 0}};
  const auto decoder = make_small(spec, random_tensors(spec), KernelSet::mlx);
  const std::vector<int32_t> ids = some_tokens(80, spec.vocab_size, 4);
  for (const std::optional<int> most : {std::optional<int>(), std::optional<int>(40)}) {
    CacheOptions plain;
    plain.max_size = most;
    const auto whole = decoder->make_cache(plain);
    const std::vector<float> want = feed(*decoder, *whole, ids);
    for (const KvFormat format : {KvFormat::q8, KvFormat::q4}) {
      CacheOptions options = plain;
      options.keys = options.values = format;
      std::vector<std::vector<float>> results;
      for (const size_t chunk : {80u, 1u, 17u}) {
        const auto cache = decoder->make_cache(options);
        std::vector<float> got;
        for (size_t i = 0; i < ids.size(); i += chunk) {
          const size_t end = std::min(ids.size(), i + chunk);
          const auto some = feed(
              *decoder,
              *cache,
              {ids.begin() + static_cast<int64_t>(i), ids.begin() + static_cast<int64_t>(end)});
          got.insert(got.end(), some.begin(), some.end());
        }
        double error = 0;
        double size = 0;
        for (size_t i = 0; i < got.size(); ++i) {
          error += std::pow(got[i] - want[i], 2);
          size += std::pow(want[i], 2);
        }
        EXPECT_LT(std::sqrt(error / size), format == KvFormat::q8 ? 0.02 : 0.25) << chunk;
        results.push_back(got);
      }
      for (size_t i = 0; i < results[0].size(); ++i) {
        ASSERT_NEAR(results[0][i], results[1][i], 2e-3);
        ASSERT_NEAR(results[0][i], results[2][i], 2e-3);
      }
    }
  }
}

}  // namespace
}  // namespace quince::test
