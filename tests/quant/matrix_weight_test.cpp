// Weights in MLX's form against the plain decoding of the same tensor.
#include "quant/matrix_weight.h"

#include <bit>
#include <cmath>
#include <random>

#include <gmock/gmock-more-matchers.h>
#include <mlx/mlx.h>

#include "base/error.h"
#include "quant/affine_blocks.h"
#include "quant/format_notes.h"
#include "quant/quantize.h"

namespace quince {
namespace {

namespace mx = mlx::core;

constexpr int64_t kRows = 7;
constexpr int64_t kColumns = 512;

LoadOptions options(bool dequantize = false) {
  LoadOptions options;
  options.pool = std::make_shared<ThreadPool>(2);
  options.dequantize = dequantize;
  return options;
}

uint16_t half_bits(float x) {
  return std::bit_cast<uint16_t>(static_cast<mx::float16_t>(x));
}

// Where the f16 scales of a block lie; random bytes there could be infinities.
std::vector<size_t> scale_places(TensorType type) {
  switch (type) {
    case TensorType::q4_0:
    case TensorType::q5_0:
    case TensorType::q8_0:
    case TensorType::iq4_nl:
      return {0};
    case TensorType::q4_1:
    case TensorType::q5_1:
    case TensorType::q4_k:
    case TensorType::q5_k:
      return {0, 2};
    case TensorType::q2_k:
      return {80, 82};
    case TensorType::q3_k:
      return {108};
    case TensorType::q6_k:
      return {208};
    case TensorType::iq4_xs:
      return {0};
    case TensorType::tq2_0:
      return {64};
    default:
      return {};
  }
}

TensorView random_tensor(TensorType type, unsigned seed = 1) {
  std::mt19937 random(seed);
  const TensorTypeInfo& format = info(type);
  const auto blocks = static_cast<size_t>(kRows * kColumns / format.block);
  std::vector<std::byte> bytes(blocks * static_cast<size_t>(format.bytes));
  for (std::byte& b : bytes) {
    b = static_cast<std::byte>(random() & 0xff);
  }
  std::uniform_real_distribution<float> scale(0.001f, 0.1f);
  for (size_t block = 0; block < blocks; ++block) {
    std::byte* at = bytes.data() + block * static_cast<size_t>(format.bytes);
    for (const size_t place : scale_places(type)) {
      const uint16_t bits = half_bits(scale(random));
      std::memcpy(at + place, &bits, 2);
    }
    if (type == TensorType::mxfp4) {
      at[0] = static_cast<std::byte>(120 + random() % 8);
    }
  }
  return make_tensor("w.weight", type, {kRows, kColumns}, std::move(bytes));
}

TensorView random_plain(TensorType type, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<std::byte> bytes;
  for (int64_t i = 0; i < kRows * kColumns; ++i) {
    const float x = normal(random);
    const auto push = [&](const auto& value) {
      const auto* from = reinterpret_cast<const std::byte*>(&value);
      bytes.insert(bytes.end(), from, from + sizeof(value));
    };
    if (type == TensorType::f32) {
      push(x);
    } else if (type == TensorType::f64) {
      push(static_cast<double>(x));
    } else if (type == TensorType::f16) {
      push(static_cast<mx::float16_t>(x));
    } else if (type == TensorType::bf16) {
      push(static_cast<mx::bfloat16_t>(x));
    } else {
      push(static_cast<uint8_t>(std::lround(x * 16) & 0x3f));  // f8, i8
    }
  }
  return make_tensor("w.weight", type, {kRows, kColumns}, std::move(bytes));
}

MatrixSource source_of(TensorView tensor) {
  MatrixSource source;
  source.path = "w";
  source.rows = kRows;
  source.columns = kColumns;
  source.weight = std::move(tensor);
  return source;
}

std::vector<float> values(const mx::array& x) {
  mx::array y = mx::contiguous(mx::astype(x, mx::float32));
  y.eval();
  return {y.data<float>(), y.data<float>() + y.size()};
}

std::vector<float> decoded(const TensorView& tensor) {
  std::vector<float> out(static_cast<size_t>(tensor.size()));
  decode_rows(tensor, 0, tensor.rows(), out.data());
  return out;
}

// |got - want| within `steps` units of the largest number of each group of 32.
void expect_near_by_group(
    const std::vector<float>& got, const std::vector<float>& want, double steps) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t at = 0; at < want.size(); at += 32) {
    float most = 0.0f;
    for (size_t i = at; i < at + 32; ++i) {
      most = std::max(most, std::abs(want[i]));
    }
    for (size_t i = at; i < at + 32; ++i) {
      ASSERT_NEAR(got[i], want[i], steps * most) << "element " << i;
    }
  }
}

// Codes, look-up and product all stand for the same matrix.
void expect_consistent(const MatrixWeight& weight) {
  const std::vector<float> dense = values(weight.dequantize());
  const mx::array ids({5, 0, 5}, mx::int32);
  const std::vector<float> rows = values(weight.take_rows(ids));
  for (size_t i = 0; i < 3; ++i) {
    for (size_t c = 0; c < kColumns; ++c) {
      ASSERT_EQ(rows[i * kColumns + c], dense[(i == 1 ? 0u : 5u) * kColumns + c]);
    }
  }
  const mx::array x = mx::random::normal({3, static_cast<int>(kColumns)});
  const mx::array bias = mx::arange(0.0, static_cast<double>(kRows), mx::float32);
  const std::vector<float> got = values(weight.matmul(x, bias));
  const std::vector<float> in = values(x);
  for (size_t r = 0; r < 3; ++r) {
    for (size_t o = 0; o < kRows; ++o) {
      double sum = static_cast<double>(o);
      double size = 1.0;
      for (size_t c = 0; c < kColumns; ++c) {
        sum += in[r * kColumns + c] * dense[o * kColumns + c];
        size += std::abs(in[r * kColumns + c] * dense[o * kColumns + c]);
      }
      ASSERT_NEAR(got[r * kRows + o], sum, 1e-6 * size);
    }
  }
}

TEST(MatrixWeight, BlocksOf32KeepTheirNumbers) {
  const std::pair<TensorType, const char*> types[] = {
      {TensorType::q4_0, "4-bit g32"},
      {TensorType::q4_1, "4-bit g32"},
      {TensorType::q5_0, "5-bit g32"},
      {TensorType::q5_1, "5-bit g32"},
      {TensorType::q8_0, "8-bit g32"},
      {TensorType::q4_k, "4-bit g32"},
      {TensorType::q5_k, "5-bit g32"},
      {TensorType::mxfp4, "mxfp4"}};
  for (const auto& [type, held] : types) {
    const TensorView tensor = random_tensor(type);
    const MatrixSource source = source_of(tensor);
    const MatrixWeight exact = MatrixWeight::load(source, mx::float32, options());
    EXPECT_EQ(exact.describe(), held);
    expect_near_by_group(values(exact.dequantize()), decoded(tensor), 1e-6);
    expect_consistent(exact);
    EXPECT_LT(exact.bytes(), static_cast<size_t>(kRows * kColumns) * 5 / 4 + 4);
    FormatNotes notes;
    notes.add(source, exact);
    EXPECT_THAT(notes.lines(), testing::IsEmpty()) << held;
    for (const auto& [dtype, steps] :
         {std::pair(mx::float16, 0.004), std::pair(mx::bfloat16, 0.03)}) {
      const MatrixWeight half = MatrixWeight::load(source, dtype, options());
      expect_near_by_group(values(half.dequantize()), decoded(tensor), steps);
    }
  }
}

TEST(MatrixWeight, OtherBlocksBecomeEightBits) {
  for (const TensorType type :
       {TensorType::q2_k,
        TensorType::q3_k,
        TensorType::q6_k,
        TensorType::iq4_nl,
        TensorType::iq4_xs,
        TensorType::tq2_0}) {
    const TensorView tensor = random_tensor(type);
    const MatrixSource source = source_of(tensor);
    const MatrixWeight weight = MatrixWeight::load(source, mx::float32, options());
    EXPECT_EQ(weight.describe(), "8-bit g32");
    expect_near_by_group(values(weight.dequantize()), decoded(tensor), 2.0 / 510 * 1.001);
    expect_consistent(weight);
    const MatrixWeight half = MatrixWeight::load(source, mx::bfloat16, options());
    expect_near_by_group(values(half.dequantize()), decoded(tensor), 0.02);
    FormatNotes notes;
    notes.add(source, weight);
    notes.add(source, weight);
    ASSERT_EQ(notes.lines().size(), 1u);
    EXPECT_THAT(
        notes.lines()[0],
        testing::StartsWith("2 " + std::string(info(type).name) + " matrices held as 8-bit g32"));
  }
}

TEST(MatrixWeight, DequantizedIsTheDecoding) {
  for (const TensorType type :
       {TensorType::q4_k, TensorType::q6_k, TensorType::iq4_xs, TensorType::mxfp4}) {
    const TensorView tensor = random_tensor(type);
    const MatrixWeight weight = MatrixWeight::load(source_of(tensor), mx::float32, options(true));
    EXPECT_FALSE(weight.quantized());
    EXPECT_EQ(values(weight.dequantize()), decoded(tensor));
    expect_consistent(weight);
  }
}

TEST(MatrixWeight, PlainTypes) {
  const std::pair<TensorType, const char*> types[] = {
      {TensorType::f32, "f32"}, {TensorType::f16, "f16"}, {TensorType::bf16, "bf16"}};
  for (const auto& [type, name] : types) {
    const MatrixSource source = source_of(random_plain(type));
    const mx::Dtype natural = natural_type(source);
    const MatrixWeight weight = MatrixWeight::load(source, natural, options());
    EXPECT_EQ(weight.describe(), name);
    EXPECT_EQ(values(weight.dequantize()), decoded(source.weight));
    const MatrixWeight widened = MatrixWeight::load(source, mx::float32, options());
    EXPECT_EQ(widened.describe(), "f32");
    EXPECT_EQ(values(widened.dequantize()), decoded(source.weight));
    expect_consistent(widened);
  }
  for (const TensorType type : {TensorType::f64, TensorType::i8, TensorType::f8_e4m3}) {
    const MatrixSource source = source_of(random_plain(type));
    const MatrixWeight weight = MatrixWeight::load(source, mx::float32, options());
    EXPECT_EQ(values(weight.dequantize()), decoded(source.weight));
  }
}

TEST(MatrixWeight, RowOrderAndOffsetOfAView) {
  for (const TensorType type :
       {TensorType::q4_0, TensorType::q6_k, TensorType::mxfp4, TensorType::f16}) {
    TensorView tensor = info(type).block > 1 ? random_tensor(type) : random_plain(type);
    tensor.row_order = {6, 5, 4, 3, 2, 1, 0};
    const MatrixWeight turned = MatrixWeight::load(source_of(tensor), mx::float32, options());
    expect_near_by_group(values(turned.dequantize()), decoded(tensor), 2.0 / 510 * 1.001);
    tensor.add = -1.0f;
    const MatrixWeight shifted = MatrixWeight::load(source_of(tensor), mx::float32, options());
    expect_near_by_group(values(shifted.dequantize()), decoded(tensor), 2.0 / 510 * 1.001);
  }
}

TEST(MatrixWeight, UnalignedBytes) {
  const TensorView good = random_plain(TensorType::f32);
  std::vector<std::byte> bytes(good.bytes.size() + 1);
  std::memcpy(bytes.data() + 1, good.bytes.data(), good.bytes.size());
  TensorView odd = good;
  odd.bytes = std::span(bytes).subspan(1);
  const MatrixWeight weight = MatrixWeight::load(source_of(odd), mx::float32, options());
  EXPECT_EQ(values(weight.dequantize()), decoded(good));
}

TEST(MatrixWeight, AllZeroGroups) {
  const TensorView zero = make_tensor(
      "w.weight", TensorType::q6_k, {kRows, kColumns}, std::vector<std::byte>(kRows * 2 * 210));
  const MatrixWeight weight = MatrixWeight::load(source_of(zero), mx::float16, options());
  EXPECT_EQ(values(weight.dequantize()), std::vector<float>(kRows * kColumns, 0.0f));
}

TEST(PackCodes, IsTheStreamThatMlxReads) {
  std::mt19937 random(3);
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    std::vector<uint8_t> codes(64);
    for (uint8_t& code : codes) {
      code = static_cast<uint8_t>(random() & ((1 << bits) - 1));
    }
    std::vector<uint32_t> words(static_cast<size_t>(64 * bits / 32));
    pack_codes(codes.data(), 64, bits, words.data());
    const mx::array w(words.data(), {1, static_cast<int>(words.size())}, mx::uint32);
    const mx::array one = mx::ones({1, 2});
    const std::vector<float> got = values(mx::dequantize(w, one, mx::zeros({1, 2}), 32, bits));
    EXPECT_EQ(got, std::vector<float>(codes.begin(), codes.end())) << bits;
  }
}

TEST(Quantize, IsWhatMlxGives) {
  const mx::array w = mx::random::normal({4, 128});
  const QuantizedMatrix q = quantize(w, {4, 64, "affine"});
  const auto want = mx::quantize(w, 64, 4);
  EXPECT_TRUE(mx::array_equal(q.codes, want[0]).item<bool>());
  EXPECT_TRUE(mx::array_equal(q.scales, want[1]).item<bool>());
  EXPECT_TRUE(mx::array_equal(*q.biases, want[2]).item<bool>());
  EXPECT_FALSE(quantize(w, {4, 32, "mxfp4"}).biases.has_value());
  EXPECT_FALSE(can_quantize(96, {4, 64, "affine"}));
  EXPECT_TRUE(can_quantize(96, {4, 32, "affine"}));
  EXPECT_THROW(quantize(mx::zeros({4, 96}), {4, 64, "affine"}), UserError);
}

}  // namespace
}  // namespace quince
