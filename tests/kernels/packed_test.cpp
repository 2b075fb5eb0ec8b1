#include "kernels/packed.h"

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "kernels/random_weights.h"

namespace quince::kernels {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using namespace quince::test;

// Equal to the bit.
testing::AssertionResult same(const std::vector<float>& want, const std::vector<float>& got) {
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::memcmp(&want[i], &got[i], sizeof(float)) != 0) {
      return testing::AssertionFailure()
             << "column " << i << ": want " << want[i] << ", got " << got[i];
    }
  }
  return testing::AssertionSuccess();
}

std::vector<float> unpack(const PackedMatrix& matrix, int64_t row) {
  std::vector<float> out(static_cast<size_t>(matrix.columns()));
  matrix.unpack_row(row, out.data());
  return out;
}

std::vector<float> decode(const TensorView& tensor, int64_t row) {
  std::vector<float> out(static_cast<size_t>(tensor.columns()));
  decode_rows(tensor, row, 1, out.data());
  return out;
}

void expect_exact(const TensorView& tensor, ThreadPool& pool) {
  const PackedMatrix matrix = PackedMatrix::pack(source_of(tensor), pool);
  ASSERT_EQ(matrix.rows(), tensor.rows());
  ASSERT_EQ(matrix.columns(), tensor.columns());
  for (int64_t row = 0; row < tensor.rows(); ++row) {
    ASSERT_TRUE(same(decode(tensor, row), unpack(matrix, row)))
        << info(tensor.type).name << " row " << row << " of " << tensor.rows();
  }
}

constexpr TensorType kKept[] = {
    TensorType::q4_0,
    TensorType::q4_1,
    TensorType::q5_0,
    TensorType::q5_1,
    TensorType::q8_0,
    TensorType::q2_k,
    TensorType::q3_k,
    TensorType::q4_k,
    TensorType::q5_k,
    TensorType::q6_k};
constexpr TensorType kDense[] = {TensorType::f32, TensorType::f16, TensorType::bf16};

TEST(Packed, KeepsEveryBlockTypeExactly) {
  ThreadPool pool(2);
  Random random(1);
  for (const TensorType type : kKept) {
    const int64_t block = info(type).block;
    for (const int64_t rows : {1, 15, 16, 17, 50, 200}) {
      for (const int64_t blocks : {1, 3}) {
        expect_exact(random_tensor("w", type, rows, blocks * block, random), pool);
      }
    }
  }
}

TEST(Packed, KeepsDenseTypesExactlyAtAnyShape) {
  ThreadPool pool(2);
  Random random(2);
  for (const TensorType type : kDense) {
    for (const int64_t rows : {1, 16, 33}) {
      for (const int64_t columns : {1, 2, 3, 31, 32, 33, 100}) {
        expect_exact(random_tensor("w", type, rows, columns, random), pool);
      }
    }
  }
}

TEST(Packed, TypesThatFitFloatsAreExactToo) {
  ThreadPool pool(1);
  Random random(3);
  for (const TensorType type :
       {TensorType::f8_e4m3, TensorType::f64, TensorType::i8, TensorType::u16, TensorType::mxfp4}) {
    expect_exact(random_tensor("w", type, 18, 64, random), pool);
  }
}

TEST(Packed, OtherTypesAreHeldAsEightBits) {
  ThreadPool pool(1);
  Random random(4);
  for (const TensorType type :
       {TensorType::iq4_nl, TensorType::iq4_xs, TensorType::tq2_0, TensorType::iq3_s}) {
    const TensorView tensor = random_tensor("w", type, 18, 256, random);
    const PackSource source = source_of(tensor);
    EXPECT_EQ(PackedMatrix::packed_format(source).describe(), "8-bit g32");
    const PackedMatrix matrix = PackedMatrix::pack(source, pool);
    for (int64_t row = 0; row < tensor.rows(); ++row) {
      const std::vector<float> want = decode(tensor, row);
      const std::vector<float> got = unpack(matrix, row);
      for (size_t first = 0; first < want.size(); first += 32) {
        float largest = 0.0f;
        for (size_t i = first; i < first + 32; ++i) {
          largest = std::max(largest, std::fabs(want[i]));
        }
        for (size_t i = first; i < first + 32; ++i) {
          // Half a step of 127 to either side.
          ASSERT_NEAR(want[i], got[i], largest / 253.0f) << info(type).name;
        }
      }
    }
  }
}

TEST(Packed, HonoursRowOrderAndAdd) {
  ThreadPool pool(2);
  Random random(5);
  for (const TensorType type : {TensorType::q4_k, TensorType::q8_0, TensorType::f16}) {
    TensorView tensor = random_tensor("w", type, 40, 256, random);
    for (int32_t i = 0; i < 40; ++i) {
      tensor.row_order.push_back((i * 7) % 40);
    }
    expect_exact(tensor, pool);
    tensor.add = 0.3f;
    expect_exact(tensor, pool);
  }
}

TEST(Packed, KeepsMlxTriplesExactly) {
  ThreadPool pool(2);
  Random random(6);
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) {
      for (const TensorType scales : {TensorType::f16, TensorType::bf16, TensorType::f32}) {
        const PackSource source = random_triple(bits, group, scales, 21, 384, random);
        const PackedMatrix matrix = PackedMatrix::pack(source, pool);
        ASSERT_EQ(matrix.columns(), 384);
        for (int64_t row = 0; row < matrix.rows(); ++row) {
          ASSERT_TRUE(same(triple_row(source, row), unpack(matrix, row)))
              << bits << " bits, group " << group << ", scales " << info(scales).name;
        }
      }
    }
  }
}

TEST(Packed, MlxScalesAndBiasesMayDifferInType) {
  ThreadPool pool(1);
  Random random(7);
  PackSource source = random_triple(4, 64, TensorType::f16, 16, 128, random);
  source.biases = random_tensor("w.biases", TensorType::f32, 16, 2, random);
  const PackedMatrix matrix = PackedMatrix::pack(source, pool);
  for (int64_t row = 0; row < matrix.rows(); ++row) {
    ASSERT_TRUE(same(triple_row(source, row), unpack(matrix, row)));
  }
}

TEST(Packed, NeverMuchLargerThanTheFile) {
  ThreadPool pool(1);
  Random random(8);
  for (const TensorType type : kKept) {
    const TensorView tensor = random_tensor("w", type, 64, 1024, random);
    const PackedMatrix matrix = PackedMatrix::pack(source_of(tensor), pool);
    EXPECT_LE(matrix.bytes(), tensor.bytes.size() * 102 / 100) << info(type).name;
  }
  for (const TensorType type : kDense) {
    const TensorView tensor = random_tensor("w", type, 64, 576, random);
    EXPECT_EQ(PackedMatrix::pack(source_of(tensor), pool).bytes(), tensor.bytes.size());
  }
}

TEST(Packed, StacksRowsOfOneFormat) {
  ThreadPool pool(2);
  Random random(9);
  const TensorView a = random_tensor("a", TensorType::q4_1, 20, 64, random);
  const TensorView b = random_tensor("b", TensorType::q4_1, 5, 64, random);
  const TensorView c = random_tensor("c", TensorType::q4_1, 40, 64, random);
  const std::vector<PackSource> sources{source_of(a), source_of(b), source_of(c)};
  const auto matrix = PackedMatrix::pack_stacked(sources, pool);
  ASSERT_TRUE(matrix);
  ASSERT_EQ(matrix->rows(), 65);
  EXPECT_TRUE(same(decode(a, 19), unpack(*matrix, 19)));
  EXPECT_TRUE(same(decode(b, 0), unpack(*matrix, 20)));
  EXPECT_TRUE(same(decode(b, 4), unpack(*matrix, 24)));
  EXPECT_TRUE(same(decode(c, 0), unpack(*matrix, 25)));
  EXPECT_TRUE(same(decode(c, 39), unpack(*matrix, 64)));
}

TEST(Packed, DoesNotStackDifferentFormats) {
  ThreadPool pool(1);
  Random random(10);
  const std::vector<PackSource> types{
      source_of(random_tensor("a", TensorType::q4_k, 16, 256, random)),
      source_of(random_tensor("b", TensorType::q6_k, 16, 256, random))};
  EXPECT_FALSE(PackedMatrix::pack_stacked(types, pool));
  const std::vector<PackSource> widths{
      source_of(random_tensor("a", TensorType::f32, 16, 8, random)),
      source_of(random_tensor("b", TensorType::f32, 16, 9, random))};
  EXPECT_FALSE(PackedMatrix::pack_stacked(widths, pool));
  EXPECT_FALSE(PackedMatrix::pack_stacked({}, pool));
}

TEST(Packed, SaysWhatIsWrongWithATriple) {
  ThreadPool pool(1);
  Random random(11);
  const PackSource good = random_triple(4, 64, TensorType::f16, 16, 128, random);
  const auto error_of = [&](auto change, const char* text) {
    PackSource source = good;
    change(source);
    EXPECT_THAT(
        [&] { PackedMatrix::pack(source, pool); },
        ThrowsMessage<UserError>(AllOf(HasSubstr("w."), HasSubstr(text))));
  };
  error_of([](PackSource& s) { s.bits = 7; }, "7 bits");
  error_of([](PackSource& s) { s.group = 48; }, "groups of 48");
  error_of([](PackSource& s) { s.biases.reset(); }, "no biases");
  error_of([](PackSource& s) { s.bits = 8; }, "needs [16, 1]");
  error_of([](PackSource& s) { s.bits = 3; }, "do not hold whole groups");
  error_of(
      [&](PackSource& s) { s.scales = random_tensor("w.scales", TensorType::u8, 16, 2, random); },
      "must be F16, BF16 or F32");
  error_of(
      [&](PackSource& s) { s.weight = random_tensor("w.weight", TensorType::f16, 16, 32, random); },
      "must be U32");
}

TEST(Packed, EmptyTensorsMakeEmptyMatrices) {
  ThreadPool pool(1);
  Random random(12);
  const PackedMatrix matrix =
      PackedMatrix::pack(source_of(random_tensor("w", TensorType::q4_0, 0, 64, random)), pool);
  EXPECT_EQ(matrix.rows(), 0);
  EXPECT_EQ(matrix.bytes(), 0u);
}

}  // namespace
}  // namespace quince::kernels
