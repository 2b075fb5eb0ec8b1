#include "cache/kv_coding.h"

#include <cmath>
#include <random>

#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include "base/error.h"

namespace quince {
namespace {

namespace mx = mlx::core;
using kernels::KvType;

constexpr int kHeads = 2;
constexpr int kRows = 5;

std::vector<float> random_rows(int dim) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(kHeads * kRows * dim));
  for (float& value : values) {
    value = normal(random);
  }
  return values;
}

// What is computed from planes that MLX made, and from planes made number by number.
class KvCodingTest : public testing::TestWithParam<std::optional<KvType>> {
 protected:
  std::vector<float> dequantized(const KvCoding& coding, const KvPlanes& planes) {
    mx::array x =
        coding.coded()
            ? mx::dequantize(planes[0], planes[1], planes[2], coding.group(), coding.bits())
            : planes[0];
    x = mx::contiguous(mx::astype(x, mx::float32));
    x.eval();
    return {x.data<float>(), x.data<float>() + x.size()};
  }
  float most() const {  // error, of numbers up to about 4
    return GetParam() == KvType::q4 ? 0.45f : 0.02f;
  }
};

TEST_P(KvCodingTest, BothWaysGiveTheNumbersBack) {
  for (const int dim : {32, 64, 96}) {
    for (const mx::Dtype type : {mx::float32, mx::float16, mx::bfloat16}) {
      const KvCoding coding(type, GetParam(), dim);
      SCOPED_TRACE(coding.name());
      const std::vector<float> values = random_rows(dim);
      const mx::array rows(values.begin(), {1, kHeads, kRows, dim}, mx::float32);
      KvPlanes planes = coding.encode(rows);
      mx::eval(planes);
      // As bytes, plane by plane.
      const std::vector<KvPlane> shapes = coding.planes();
      ASSERT_EQ(planes.size(), shapes.size());
      std::vector<std::byte> bytes;
      for (size_t i = 0; i < planes.size(); ++i) {
        EXPECT_EQ(planes[i].shape(), (mx::Shape{1, kHeads, kRows, shapes[i].width}));
        EXPECT_EQ(planes[i].dtype(), shapes[i].type);
        const auto* data = planes[i].data<std::byte>();
        bytes.insert(bytes.end(), data, data + planes[i].nbytes());
      }
      EXPECT_EQ(bytes.size(), coding.row_bytes() * kHeads * kRows);
      std::vector<float> decoded(values.size());
      coding.decode(bytes.data(), kHeads * kRows, decoded.data());
      const std::vector<float> theirs = dequantized(coding, planes);
      std::vector<std::byte> own(bytes.size(), std::byte{0xff});
      coding.encode(values.data(), kHeads * kRows, own.data());
      std::vector<float> again(values.size());
      coding.decode(own.data(), kHeads * kRows, again.data());
      for (size_t i = 0; i < values.size(); ++i) {
        // Products and sums are rounded to `type` there.
        ASSERT_NEAR(decoded[i], theirs[i], type == mx::float32 ? 1e-5 : 0.03);
        ASSERT_NEAR(decoded[i], values[i], most() + (type == mx::bfloat16 ? 0.03f : 0.0f));
        ASSERT_NEAR(again[i], values[i], most() + (type == mx::bfloat16 ? 0.03f : 0.0f));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats,
    KvCodingTest,
    testing::Values(std::nullopt, KvType::f32, KvType::f16, KvType::bf16, KvType::q8, KvType::q4),
    [](const auto& info) {
      return !info.param                   ? "own"
             : *info.param == KvType::f32  ? "f32"
             : *info.param == KvType::f16  ? "f16"
             : *info.param == KvType::bf16 ? "bf16"
             : *info.param == KvType::q8   ? "q8"
                                           : "q4";
    });

TEST(KvCoding, FourBitsTakeLessThanThreeTenthsOfBf16) {
  const KvCoding coded(mx::bfloat16, KvType::q4, 64);
  const KvCoding plain(mx::bfloat16, {}, 64);
  EXPECT_LE(static_cast<double>(coded.row_bytes()), 0.3 * static_cast<double>(plain.row_bytes()));
}

TEST(KvCoding, EqualNumbersStayThemselves) {
  const KvCoding coding(mx::float32, KvType::q4, 32);
  const std::vector<float> values(32, -1.5f);
  std::vector<std::byte> bytes(coding.row_bytes());
  coding.encode(values.data(), 1, bytes.data());
  std::vector<float> decoded(32);
  coding.decode(bytes.data(), 1, decoded.data());
  EXPECT_EQ(decoded, values);
}

TEST(KvCoding, HeadsWithoutGroupsAreRefused) {
  EXPECT_THROW(KvCoding(mx::float32, KvType::q8, 48), UserError);
  EXPECT_NO_THROW(KvCoding(mx::float32, KvType::f16, 48));
}

}  // namespace
}  // namespace quince
