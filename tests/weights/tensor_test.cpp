#include "weights/tensor.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "weights/files.h"
#include "weights/float_formats.h"
#include "weights/safetensors.h"

namespace quince {
namespace {

using ::testing::ElementsAre;

std::vector<std::byte> to_bytes(std::string_view text) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

std::vector<std::byte> from_hex(std::string_view hex) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

// Value of a float of these fields by definition.
double by_definition(uint32_t bits, int exponent_bits, int mantissa_bits, int bias) {
  const uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
  const uint32_t exponent = (bits >> mantissa_bits) & ((1u << exponent_bits) - 1);
  const bool negative = (bits >> (mantissa_bits + exponent_bits)) & 1;
  const double value = exponent == 0
                           ? std::ldexp(static_cast<double>(mantissa), 1 - bias - mantissa_bits)
                           : std::ldexp(
                                 static_cast<double>(mantissa + (1u << mantissa_bits)),
                                 static_cast<int>(exponent) - bias - mantissa_bits);
  return negative ? -value : value;
}

TEST(FloatFormats, EveryHalf) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = f16_to_f32(static_cast<uint16_t>(bits));
    if ((bits & 0x7c00) != 0x7c00) {
      ASSERT_EQ(value, by_definition(bits, 5, 10, 15)) << bits;
      ASSERT_EQ(std::signbit(value), bits >> 15 != 0) << bits;
    } else if ((bits & 0x3ff) == 0) {
      ASSERT_TRUE(std::isinf(value)) << bits;
    } else {
      ASSERT_TRUE(std::isnan(value)) << bits;
    }
  }
}

TEST(FloatFormats, EveryByteFloat) {
  for (uint32_t bits = 0; bits < 256; ++bits) {
    const float e4m3 = f8_e4m3_to_f32(static_cast<uint8_t>(bits));
    if ((bits & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(e4m3));
    } else {
      EXPECT_EQ(e4m3, by_definition(bits, 4, 3, 7)) << bits;
    }
    const float e5m2 = f8_e5m2_to_f32(static_cast<uint8_t>(bits));
    if ((bits & 0x7c) != 0x7c) {
      EXPECT_EQ(e5m2, by_definition(bits, 5, 2, 15)) << bits;
    }
  }
  EXPECT_EQ(f8_e4m3_to_f32(0x7e), 448.0f);
  EXPECT_EQ(f8_e5m2_to_f32(0x7b), 57344.0f);
}

TEST(FloatFormats, Bfloat16IsTheUpperHalf) {
  EXPECT_EQ(bf16_to_f32(0x3f80), 1.0f);
  EXPECT_EQ(bf16_to_f32(0xc049), -3.140625f);
}

class BlockGolden : public ::testing::TestWithParam<TensorType> {};

// Equal to the bit to gguf.quants.dequantize.
TEST_P(BlockGolden, DecodesAsTheReference) {
  const auto golden = open_safetensors(QUINCE_TEST_DATA "/weights/golden/blocks.safetensors");
  const std::string name(info(GetParam()).name);
  const TensorView* bytes = nullptr;
  const TensorView* values = nullptr;
  for (const TensorView& t : golden.tensors) {
    bytes = t.name == name + ".bytes" ? &t : bytes;
    values = t.name == name + ".values" ? &t : values;
  }
  ASSERT_TRUE(bytes && values) << name;

  const TensorTypeInfo& t = info(GetParam());
  const int64_t blocks = bytes->size() / t.bytes;
  ASSERT_EQ(bytes->size() % t.bytes, 0);
  ASSERT_EQ(values->size(), blocks * t.block);
  const TensorView tensor =
      make_tensor(name, GetParam(), {blocks, t.block}, {bytes->bytes.begin(), bytes->bytes.end()});
  std::vector<float> got(static_cast<size_t>(values->size()), -1.0f);
  decode_rows(tensor, 0, blocks, got.data());
  EXPECT_EQ(std::memcmp(got.data(), values->bytes.data(), got.size() * sizeof(float)), 0);
  for (size_t i = 0; i < got.size(); ++i) {
    float want;
    std::memcpy(&want, values->bytes.data() + i * sizeof(float), sizeof(float));
    ASSERT_EQ(got[i], want) << name << " element " << i;
  }
}

std::vector<TensorType> block_types() {
  std::vector<TensorType> types;
  for (int i = 0; i <= static_cast<int>(TensorType::mxfp4); ++i) {
    if (info(static_cast<TensorType>(i)).block > 1) {
      types.push_back(static_cast<TensorType>(i));
    }
  }
  return types;
}

INSTANTIATE_TEST_SUITE_P(
    All, BlockGolden, ::testing::ValuesIn(block_types()), [](const auto& param) {
      return std::string(quince::info(param.param).name);
    });

// GGUF-05: the block of the report, with scale 0.5 and minimum -1.
TEST(DecodeRows, Q4_1BlockOfTheReport) {
  const TensorView tensor = make_tensor(
      "t", TensorType::q4_1, {32}, from_hex("003800bcf0e1d2c3b4a5968778695a4b3c2d1e0f"));
  std::vector<float> got(32);
  decode_rows(tensor, 0, 1, got.data());
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(got[i], -1.0f + 0.5f * static_cast<float>(i));
    EXPECT_EQ(got[i + 16], 6.5f - 0.5f * static_cast<float>(i));
  }
}

template <typename T>
std::vector<float> decode_numbers(TensorType type, const std::vector<T>& numbers) {
  std::string bytes;
  for (const T number : numbers) {
    bytes += test::raw(number);
  }
  const auto tensor =
      make_tensor("t", type, {static_cast<int64_t>(numbers.size())}, to_bytes(bytes));
  std::vector<float> out(numbers.size());
  decode_rows(tensor, 0, 1, out.data());
  return out;
}

TEST(DecodeRows, PlainNumbers) {
  EXPECT_THAT(decode_numbers<double>(TensorType::f64, {1.5, -2e10}), ElementsAre(1.5f, -2e10f));
  EXPECT_THAT(decode_numbers<float>(TensorType::f32, {0.1f, -7}), ElementsAre(0.1f, -7));
  EXPECT_THAT(decode_numbers<uint16_t>(TensorType::f16, {0x3c00, 0xc000}), ElementsAre(1, -2));
  EXPECT_THAT(decode_numbers<uint16_t>(TensorType::bf16, {0x3f80, 0xc000}), ElementsAre(1, -2));
  EXPECT_THAT(decode_numbers<uint8_t>(TensorType::f8_e4m3, {0x38, 0xc0}), ElementsAre(1, -2));
  EXPECT_THAT(decode_numbers<uint8_t>(TensorType::f8_e5m2, {0x3c, 0xc0}), ElementsAre(1, -2));
  EXPECT_THAT(decode_numbers<int64_t>(TensorType::i64, {-5, 1LL << 40}), ElementsAre(-5, 0x1p40f));
  EXPECT_THAT(decode_numbers<int32_t>(TensorType::i32, {-5, 7}), ElementsAre(-5, 7));
  EXPECT_THAT(decode_numbers<int16_t>(TensorType::i16, {-5, 7}), ElementsAre(-5, 7));
  EXPECT_THAT(decode_numbers<int8_t>(TensorType::i8, {-128, 127}), ElementsAre(-128, 127));
  EXPECT_THAT(decode_numbers<uint64_t>(TensorType::u64, {~0ull}), ElementsAre(0x1p64f));
  EXPECT_THAT(decode_numbers<uint32_t>(TensorType::u32, {~0u}), ElementsAre(0x1p32f));
  EXPECT_THAT(decode_numbers<uint16_t>(TensorType::u16, {65535}), ElementsAre(65535));
  EXPECT_THAT(decode_numbers<uint8_t>(TensorType::u8, {255}), ElementsAre(255));
  EXPECT_THAT(decode_numbers<uint8_t>(TensorType::boolean, {0, 1, 7}), ElementsAre(0, 1, 1));
}

TEST(DecodeRows, RowOrderAndAddedConstant) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) {
    bytes += test::raw(static_cast<float>(i));
  }
  TensorView tensor = make_tensor("t", TensorType::f32, {4, 2}, to_bytes(bytes));
  tensor.row_order = {0, 2, 1, 3};
  tensor.add = -1.0f;
  std::vector<float> out(6);
  decode_rows(tensor, 1, 3, out.data());
  EXPECT_THAT(out, ElementsAre(3, 4, 1, 2, 5, 6));
  decode_rows(tensor, 0, 0, nullptr);
}

TEST(DecodeRows, UnalignedBytes) {
  std::vector<std::byte> storage(1 + 8);
  const float want[2] = {1.25f, -8.0f};
  std::memcpy(storage.data() + 1, want, 8);
  TensorView tensor;
  tensor.shape = {2};
  tensor.bytes = std::span(storage).subspan(1);
  std::vector<float> out(2);
  decode_rows(tensor, 0, 1, out.data());
  EXPECT_THAT(out, ElementsAre(1.25f, -8.0f));
}

TEST(TensorBytes, CountsAndRefusesOverflow) {
  const auto bytes = [](TensorType type, std::vector<int64_t> shape) {
    return tensor_bytes(type, shape);
  };
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(bytes(TensorType::f32, {2, 3}), 24u);
  EXPECT_EQ(bytes(TensorType::f32, {}), 4u);
  EXPECT_EQ(bytes(TensorType::f32, {0, 3}), 0u);
  EXPECT_EQ(bytes(TensorType::q4_1, {2, 64}), 80u);
  EXPECT_EQ(bytes(TensorType::q4_k, {3, 512}), 3u * 288);
  EXPECT_FALSE(bytes(TensorType::q4_1, {2, 33}));
  EXPECT_FALSE(bytes(TensorType::f32, {-1, 16}));
  EXPECT_FALSE(bytes(TensorType::i8, {2, kMax}));
  EXPECT_FALSE(bytes(TensorType::f32, {int64_t{1} << 62, 4}));
  EXPECT_FALSE(bytes(TensorType::f32, {int64_t{1} << 32, int64_t{1} << 32}));
  EXPECT_FALSE(bytes(TensorType::f32, {kMax}));
  EXPECT_FALSE(bytes(TensorType::f32, {0, int64_t{1} << 32, int64_t{1} << 32}));
}

}  // namespace
}  // namespace quince
