#include "kernels/matmul.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/elementwise.h"
#include "kernels/matmul_kernels.h"
#include "kernels/random_weights.h"

namespace quince::kernels {
namespace {

using namespace quince::test;

// A weight matrix of some format by name: a GGML type, or "mlx4g64/BF16".
struct Format {
  std::string name;
  TensorType type = TensorType::f32;  // of the tensor, or of the triple's scales
  int bits = 0;                       // of a triple
  int group = 0;
  bool dense = false;

  PackSource make(int64_t rows, int64_t columns, Random& random) const {
    return bits ? random_triple(bits, group, type, rows, columns, random)
                : source_of(random_tensor("w", type, rows, columns, random));
  }
  int64_t column_step() const {
    return bits ? group : info(type).block;
  }
};

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest looks for this name.
void PrintTo(const Format& format, std::ostream* out) {
  *out << format.name;
}

std::vector<Format> formats() {
  std::vector<Format> all;
  for (const TensorType type : {TensorType::f32, TensorType::f16, TensorType::bf16}) {
    all.push_back({std::string(info(type).name), type, 0, 0, true});
  }
  for (const TensorType type :
       {TensorType::q4_0,
        TensorType::q4_1,
        TensorType::q5_0,
        TensorType::q5_1,
        TensorType::q8_0,
        TensorType::q2_k,
        TensorType::q3_k,
        TensorType::q4_k,
        TensorType::q5_k,
        TensorType::q6_k,
        TensorType::mxfp4}) {
    all.push_back({std::string(info(type).name), type, 0, 0, false});
  }
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) {
      const TensorType scales = group == 32   ? TensorType::f32
                                : group == 64 ? TensorType::bf16
                                              : TensorType::f16;
      all.push_back(
          {"mlx" + std::to_string(bits) + "g" + std::to_string(group), scales, bits, group, false});
    }
  }
  return all;
}

// Memory with the alignment that prepare() wants.
class AlignedBytes {
 public:
  explicit AlignedBytes(size_t size) : data_(new(std::align_val_t{64}) std::byte[size + 64]) {
    std::memset(data_, 0xff, size + 64);  // NaN everywhere: unwritten padding shows
  }
  ~AlignedBytes() {
    ::operator delete[](data_, std::align_val_t{64});
  }
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;
  std::byte* data() {
    return data_;
  }

 private:
  std::byte* data_;
};

// One for each path of this machine; TheChosenTable... checks that none is null.
std::vector<const MatmulKernels*> tables() {
  std::vector<const MatmulKernels*> all;
  for (const CpuPath path : available_paths()) {
    all.push_back(matmul_kernels(path));
  }
  return all;
}

constexpr float kGuard = 12345.0f;

struct Case {
  int64_t m = 1;
  std::vector<float> x;  // [m, columns]
};

Case random_case(int64_t m, int64_t columns, Random& random) {
  Case c{m, std::vector<float>(static_cast<size_t>(m * columns))};
  for (float& value : c.x) {
    value = random.normal();
  }
  return c;
}

// y of [m, ldy], ldy > rows; columns behind the last row of the matrix must keep their guard.
std::vector<float> run(
    const MatmulKernels& kernels,
    ThreadPool& pool,
    const PackedMatrix& w,
    const Case& c,
    int64_t ldy,
    Store store,
    float start,
    int64_t as_many = 1) {  // the kind of so many rows
  std::vector<float> y(static_cast<size_t>(c.m * ldy), kGuard);
  for (int64_t i = 0; i < c.m; ++i) {
    std::fill_n(y.begin() + i * ldy, w.rows(), start);
  }
  const RowKind kind = kernels.row_kind(w.layout(), std::max(c.m, as_many));
  AlignedBytes memory(prepared_bytes(kind, c.m, w.columns()));
  const Rows rows{kind, c.m, w.columns(), memory.data()};
  pool.run([&](Team& team) {
    const int64_t first = c.m * team.rank() / team.size();
    const int64_t last = c.m * (team.rank() + 1) / team.size();
    kernels.prepare(rows, c.x.data(), w.columns(), first, last);
    team.sync();
    matmul_with(kernels, team, w, rows, y.data(), ldy, store);
  });
  return y;
}

// What a kind of activation may add to the error of one output, from its definition.
double allowed_error(RowKind kind, bool bf16_weights, const std::vector<float>& w, const float* x) {
  double products = 0.0;
  double steps = 0.0;
  for (size_t first = 0; first < w.size(); first += 32) {
    double largest = 0.0;
    double weights = 0.0;
    for (size_t k = first; k < std::min(first + 32, w.size()); ++k) {
      products += std::fabs(static_cast<double>(w[k]) * x[k]);
      weights += std::fabs(w[k]);
      largest = std::max(largest, std::fabs(static_cast<double>(x[k])));
    }
    steps += weights * largest / 254.0;
  }
  switch (kind) {
    case RowKind::f32:
      return 2e-6 * products + 1e-30;
    case RowKind::int8:
      return 1.001 * steps + 1e-5 * products + 1e-30;
    case RowKind::bf16_pair:
      return 1e-4 * products + 1e-30;
    case RowKind::bf16:
      return (bf16_weights ? 0.0040 : 0.0120) * products + 1e-30;
  }
  return 0.0;
}

class Matmul : public testing::TestWithParam<Format> {};

TEST_P(Matmul, AgreesWithDoublesOnEveryPath) {
  const Format& format = GetParam();
  Random random(17);
  ThreadPool pool(2);
  std::vector<std::pair<int64_t, int64_t>> shapes;  // rows, columns
  if (format.dense) {
    shapes = {{1, 1}, {5, 3}, {17, 33}, {40, 100}, {33, 64}, {48, 576}};
  } else {
    const int64_t step = format.column_step();
    shapes = {{7, step}, {16, step * 2}, {33, step * 3}, {48, step * ((2047 + step) / step)}};
  }
  for (const auto& [rows, columns] : shapes) {
    const PackedMatrix w = PackedMatrix::pack(format.make(rows, columns, random), pool);
    std::vector<std::vector<float>> weights(static_cast<size_t>(rows));
    for (int64_t r = 0; r < rows; ++r) {
      weights[static_cast<size_t>(r)].resize(static_cast<size_t>(columns));
      w.unpack_row(r, weights[static_cast<size_t>(r)].data());
    }
    // Every way through the kernels on small shapes; a wide one for the sums over many columns.
    const std::vector<int64_t> all{1, 2, 3, 5, 8, 16, 17, 33, 64, 100};
    const std::vector<int64_t> few{1, 7, 40};
    for (const int64_t m : columns < 512 ? all : few) {
      const Case c = random_case(m, columns, random);
      std::vector<double> want(static_cast<size_t>(m * rows));
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t r = 0; r < rows; ++r) {
          double sum = 0.0;
          for (int64_t k = 0; k < columns; ++k) {
            sum += static_cast<double>(weights[static_cast<size_t>(r)][static_cast<size_t>(k)]) *
                   c.x[static_cast<size_t>(i * columns + k)];
          }
          want[static_cast<size_t>(i * rows + r)] = sum;
        }
      }
      for (const MatmulKernels* kernels : tables()) {
        SCOPED_TRACE(
            format.name + " [" + std::to_string(rows) + ", " + std::to_string(columns) +
            "] m=" + std::to_string(m) + " " + std::string(name(kernels->path)));
        const RowKind kind = kernels->row_kind(w.layout(), m);
        const int64_t ldy = rows + 3;
        const std::vector<float> y = run(*kernels, pool, w, c, ldy, Store::set, -7.0f);
        double error = 0.0;
        double power = 0.0;
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t r = 0; r < ldy; ++r) {
            const float got = y[static_cast<size_t>(i * ldy + r)];
            if (r >= rows) {
              ASSERT_EQ(got, kGuard) << "written behind row " << i;
              continue;
            }
            const double exact = want[static_cast<size_t>(i * rows + r)];
            const double allowed = allowed_error(
                kind,
                w.format().kind == PackedKind::bf16,
                weights[static_cast<size_t>(r)],
                c.x.data() + i * columns);
            ASSERT_NEAR(exact, got, allowed) << "row " << i << ", output " << r;
            error += (exact - got) * (exact - got);
            // Not exact * exact: that may cancel to nothing.
            for (int64_t k = 0; k < columns; ++k) {
              const double product =
                  static_cast<double>(weights[static_cast<size_t>(r)][static_cast<size_t>(k)]) *
                  c.x[static_cast<size_t>(i * columns + k)];
              power += product * product;
            }
          }
        }
        // 8-bit steps of the largest of 32 normal numbers: 2.3 / 127 / sqrt(12) = 0.5%.
        if (m >= 33 && rows > 1) {  // enough independent rows for the statistic
          EXPECT_LE(std::sqrt(error / power), kind == RowKind::bf16 ? 0.0040 : 0.0068);
        }
      }
    }
  }
}

TEST_P(Matmul, DoesNotDependOnTheTeamAndAddsInPlace) {
  const Format& format = GetParam();
  Random random(23);
  ThreadPool one(1);
  ThreadPool three(3);
  const int64_t columns = format.dense ? 70 : format.column_step() * 2;
  const PackedMatrix w = PackedMatrix::pack(format.make(83, columns, random), one);
  for (const int64_t m : {1, 7, 40}) {
    const Case c = random_case(m, columns, random);
    for (const MatmulKernels* kernels : tables()) {
      SCOPED_TRACE(
          format.name + " m=" + std::to_string(m) + " " + std::string(name(kernels->path)));
      const std::vector<float> set = run(*kernels, one, w, c, 90, Store::set, 1.0f);
      const std::vector<float> by_three = run(*kernels, three, w, c, 90, Store::set, 1.0f);
      ASSERT_EQ(std::memcmp(set.data(), by_three.data(), set.size() * sizeof(float)), 0);
      const std::vector<float> added = run(*kernels, one, w, c, 90, Store::add, 1.5f);
      for (size_t i = 0; i < set.size(); ++i) {
        const float want = i % 90 < 83 ? set[i] + 1.5f : kGuard;
        ASSERT_NEAR(added[i], want, 1e-5f + 1e-5f * std::fabs(want));
      }
    }
  }
}

// Rows prepared as if there were many: what each gives is the same however many there are.
TEST_P(Matmul, RowsOfTheKindOfManyAreTheSameInAnyNumber) {
  const Format& format = GetParam();
  Random random(29);
  ThreadPool pool(2);
  const int64_t columns = format.dense ? 70 : format.column_step() * 3;
  const PackedMatrix w = PackedMatrix::pack(format.make(150, columns, random), pool);
  const Case all = random_case(80, columns, random);
  for (const MatmulKernels* kernels : tables()) {
    const std::vector<float> want = run(*kernels, pool, w, all, 150, Store::set, 0.0f, kManyRows);
    for (const int64_t m : {1, 2, 3, 5, 8, 9, 16, 17, 31, 32, 33, 64, 65}) {
      SCOPED_TRACE(
          format.name + " m=" + std::to_string(m) + " " + std::string(name(kernels->path)));
      const Case some{m, {all.x.begin(), all.x.begin() + m * columns}};
      const std::vector<float> got = run(*kernels, pool, w, some, 150, Store::set, 0.0f, kManyRows);
      ASSERT_TRUE(std::equal(got.begin(), got.end(), want.begin()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Matmul, testing::ValuesIn(formats()), [](const auto& info) {
  return info.param.name;
});

// So many activations that tiles are multiplied in stripes of columns.
TEST(MatmulRows, ManyRowsInStripes) {
  Random random(41);
  ThreadPool pool(2);
  const int64_t rows = 40;
  const int64_t columns = 1088;
  const int64_t m = 520;
  const PackedMatrix w = PackedMatrix::pack(
      source_of(random_tensor("w", TensorType::q4_0, rows, columns, random)), pool);
  const Case c = random_case(m, columns, random);
  std::vector<float> weights(static_cast<size_t>(columns));
  for (const MatmulKernels* kernels : tables()) {
    if (kernels->row_kind(w.layout(), m) != RowKind::bf16) {
      continue;
    }
    for (const Store store : {Store::set, Store::add}) {
      const std::vector<float> y = run(*kernels, pool, w, c, rows, store, 0.5f);
      for (int64_t r = 0; r < rows; ++r) {
        w.unpack_row(r, weights.data());
        for (int64_t i = 0; i < m; ++i) {
          double sum = store == Store::add ? 0.5 : 0.0;
          for (int64_t k = 0; k < columns; ++k) {
            sum += static_cast<double>(weights[static_cast<size_t>(k)]) *
                   c.x[static_cast<size_t>(i * columns + k)];
          }
          const double allowed =
              allowed_error(RowKind::bf16, false, weights, c.x.data() + i * columns);
          ASSERT_NEAR(sum, y[static_cast<size_t>(i * rows + r)], allowed) << i << ", " << r;
        }
      }
    }
  }
}

// The fused gate against the matrix, the activation, and rounding one after the other.
TEST(MatmulGated, AgreesWithItsParts) {
  Random random(43);
  ThreadPool pool(3);
  for (const TensorType type : {TensorType::q4_1, TensorType::q4_k, TensorType::bf16}) {
    for (const auto& [inner, columns] : {std::pair<int64_t, int64_t>{32, 256}, {96, 768}}) {
      const PackedMatrix w =
          PackedMatrix::pack(source_of(random_tensor("w", type, 2 * inner, columns, random)), pool);
      std::vector<float> bias(static_cast<size_t>(2 * inner));
      for (float& value : bias) {
        value = random.normal();
      }
      for (const MatmulKernels* kernels : tables()) {
        for (const int64_t m : {9, 16, 17, 32, 33, 70, 130, 600}) {
          const RowKind kind = kernels->row_kind(w.layout(), m);
          const Case c = random_case(m, columns, random);
          AlignedBytes x_memory(prepared_bytes(kind, m, columns));
          const Rows x{kind, m, columns, x_memory.data()};
          if (!can_gate_with(*kernels, w, x, RowKind::bf16)) {
            EXPECT_TRUE(kernels->path != CpuPath::amx || (m <= 32 && type == TensorType::bf16));
            continue;
          }
          kernels->prepare(x, c.x.data(), columns, 0, m);
          const std::vector<float> sums = run(*kernels, pool, w, c, 2 * inner, Store::set, 0.0f);
          const RowOps& ops = row_ops(kernels->path);
          for (const auto& [activation, act] :
               {std::pair{GateActivation::silu, ops.silu_mul},
                {GateActivation::gelu_tanh, ops.gelu_tanh_mul},
                {GateActivation::gelu, ops.gelu_mul}}) {
            for (const bool biased : {false, true}) {
              SCOPED_TRACE(
                  std::string(info(type).name) + " inner=" + std::to_string(inner) +
                  " m=" + std::to_string(m) + " act " +
                  std::to_string(static_cast<int>(activation)) + (biased ? " biased" : ""));
              std::vector<float> values(static_cast<size_t>(m * inner));
              for (int64_t i = 0; i < m; ++i) {
                std::vector<float> row(
                    sums.begin() + i * 2 * inner, sums.begin() + (i + 1) * 2 * inner);
                if (biased) {
                  ops.add(row.data(), bias.data(), 2 * inner);
                }
                act(row.data(), row.data() + inner, inner, values.data() + i * inner);
              }
              const size_t bytes = prepared_bytes(RowKind::bf16, m, inner);
              AlignedBytes want_memory(bytes);
              AlignedBytes got_memory(bytes);
              const Rows want{RowKind::bf16, m, inner, want_memory.data()};
              const Rows got{RowKind::bf16, m, inner, got_memory.data()};
              kernels->prepare(want, values.data(), inner, 0, m);
              const Gate gate{activation, biased ? bias.data() : nullptr};
              pool.run([&](Team& team) { matmul_gated_with(*kernels, team, w, x, gate, got); });
              for (int64_t i = 0; i < m; ++i) {  // rows behind the last are nobody's business
                for (int64_t k = 0; k < inner; k += kTileColumns) {
                  const size_t at =
                      static_cast<size_t>(i / kTileRows * column_tiles(inner) + k / kTileColumns) *
                          kTileBytes +
                      static_cast<size_t>(i % kTileRows) * kVector;
                  ASSERT_EQ(std::memcmp(want.data + at, got.data + at, kVector), 0)
                      << "row " << i << ", column " << k;
                }
              }
            }
          }
        }
      }
    }
  }
}

// A row that is not finite spoils its own results and nothing else.
TEST(MatmulRows, NonFiniteActivationsStayInTheirRow) {
  Random random(29);
  ThreadPool pool(1);
  const PackedMatrix w =
      PackedMatrix::pack(source_of(random_tensor("w", TensorType::q4_0, 32, 64, random)), pool);
  for (const MatmulKernels* kernels : tables()) {
    SCOPED_TRACE(name(kernels->path));
    for (const int64_t m : {3, 40}) {
      Case c = random_case(m, 64, random);
      c.x[5] = std::numeric_limits<float>::quiet_NaN();
      c.x[64 + 40] = std::numeric_limits<float>::infinity();
      const std::vector<float> y = run(*kernels, pool, w, c, 32, Store::set, 0.0f);
      for (int64_t r = 0; r < 32; ++r) {
        EXPECT_TRUE(std::isnan(y[static_cast<size_t>(r)]));
        EXPECT_FALSE(std::isfinite(y[static_cast<size_t>(32 + r)]));
        EXPECT_TRUE(std::isfinite(y[static_cast<size_t>(64 + r)]));
      }
    }
  }
}

TEST(MatmulRows, ZeroAndTinyActivations) {
  Random random(31);
  ThreadPool pool(1);
  const PackedMatrix w =
      PackedMatrix::pack(source_of(random_tensor("w", TensorType::q8_0, 16, 32, random)), pool);
  for (const MatmulKernels* kernels : tables()) {
    SCOPED_TRACE(name(kernels->path));
    for (const float value : {0.0f, -0.0f, 1e-40f, 1e-38f}) {
      Case c{2, std::vector<float>(64, value)};
      for (const float got : run(*kernels, pool, w, c, 16, Store::set, 3.0f)) {
        EXPECT_LE(std::fabs(got), 1e-34f);
      }
    }
  }
}

TEST(MatmulRows, TheChosenTableIsTheOneOfThisMachine) {
  Random random(37);
  ThreadPool pool(1);
  const PackedMatrix w =
      PackedMatrix::pack(source_of(random_tensor("w", TensorType::q4_0, 16, 32, random)), pool);
  for (const CpuPath path : available_paths()) {
    ASSERT_TRUE(matmul_kernels(path)) << name(path);
    EXPECT_EQ(matmul_kernels(path)->path, path);
  }
  const MatmulKernels& kernels = *matmul_kernels(detect());
  for (const int64_t m : {1, 64}) {
    EXPECT_EQ(row_kind(w, m), kernels.row_kind(w.layout(), m));
  }
}

}  // namespace
}  // namespace quince::kernels
