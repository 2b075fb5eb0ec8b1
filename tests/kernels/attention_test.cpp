#include "kernels/attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu_paths.h"

namespace quince::kernels {
namespace {

class Attention : public EveryPath {};
QUINCE_EVERY_PATH(Attention);

struct Shape {
  int kv_heads;
  int group;
  int head_dim;
};

constexpr Shape kShapes[] = {
    {3, 3, 64},
    {1, 4, 256},
    {2, 1, 128},
    {1, 8, 96},
    {2, 2, 80},
    {1, 5, 16},
    {1, 7, 24},
    {2, 1, 10}};

struct FreeBytes {
  void operator()(std::byte* p) const {
    std::free(p);
  }
};
using Bytes = std::unique_ptr<std::byte, FreeBytes>;

Bytes aligned(size_t size) {
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(64, (size + 63) / 64 * 64));
  std::memset(memory, 0xff, size);  // NaNs: reading what was never written shows
  return Bytes(memory);
}

// x turned by the matrix of attention_stored.h, given codes, and turned back: element (i, j) is
// sign(j) * (-1)^popcount(i & j) / sqrt(n), over the largest power of two n that divides dim.
void as_coded(KvType type, float* x, int dim) {
  static std::map<int, std::vector<double>> matrices;
  std::vector<double>& turn = matrices[dim];
  for (int i = 0; std::ssize(turn) < dim * dim; ++i) {
    const int n = dim & -dim;
    for (int j = 0; j < dim; ++j) {
      const bool minus = (0x9e3779b97f4a7c15u * (static_cast<uint64_t>(j) + 1)) >> 63;
      const bool odd = std::popcount(static_cast<unsigned>((i % n) & (j % n))) % 2;
      turn.push_back(i / n == j / n ? (minus != odd ? -1 : 1) / std::sqrt(n) : 0);
    }
  }
  std::vector<double> turned(dim);
  for (int i = 0; i < dim; ++i) {
    turned[i] = std::inner_product(x, x + dim, turn.begin() + i * dim, 0.0);
  }
  for (int first = 0; first < dim; first += 32) {
    const auto group = std::span(turned).subspan(first, std::min(32, dim - first));
    const double furthest = *std::ranges::max_element(
        group, [](double a, double b) { return std::abs(a) < std::abs(b); });
    const auto wanted = static_cast<float>(furthest / (type == KvType::q8 ? 127 : -8));
    const uint32_t bits = std::bit_cast<uint32_t>(wanted);
    const double scale = std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000);
    for (double& y : group) {
      const double code = std::nearbyint(y / scale);
      y = scale *
          (type == KvType::q8 ? std::clamp(code, -127.0, 127.0) : std::clamp(code, -8.0, 7.0));
    }
  }
  for (int j = 0; j < dim; ++j) {
    double sum = 0;
    for (int i = 0; i < dim; ++i) {
      sum += turn[i * dim + j] * turned[i];
    }
    x[j] = static_cast<float>(sum);
  }
}

// A sequence whose keys and values are remembered in double besides, as they were stored.
class Sequence {
 public:
  Sequence(const AttentionOps& ops, Shape shape, KvType type, KvSpan span, unsigned seed)
      : ops_(ops), shape_(shape), span_(span), random_(seed) {
    layout_.layers = 2;  // the second one is used: offsets matter
    layout_.kv_heads = shape.kv_heads;
    layout_.head_dim = shape.head_dim;
    layout_.slab_blocks = 3;
    layout_.key_type = layout_.value_type = type;
    store_ = std::make_unique<KvStore>(std::make_shared<KvPool>(layout_), span);
  }

  AttentionHead head(int h) const {
    AttentionHead head;
    head.blocks = list_->blocks.data();
    head.block_count = static_cast<int>(list_->blocks.size());
    head.key_offset = layout_.key_offset(1, h);
    head.value_offset = layout_.value_offset(1, h);
    head.key_type = layout_.key_type;
    head.value_type = layout_.value_type;
    head.head_dim = shape_.head_dim;
    head.value_width = layout_.value_width();
    head.group = shape_.group;
    head.span = span_;
    return head;
  }

  int64_t length() const {
    return store_->length();
  }

  // Appends n positions, block by block as the decoder does.
  void append(int n) {
    int64_t first = store_->length();
    list_ = store_->append(n);
    const int dim = shape_.head_dim;
    const int64_t stride = 2 * shape_.kv_heads * dim + 3;
    std::vector<float> rows(n * stride);
    for (float& x : rows) {
      x = rounded(normal_(random_));
    }
    if (coded()) {  // some dimensions stand out, as they do in keys
      for (int64_t i = 0; i < std::ssize(rows); i += 7) {
        rows[static_cast<size_t>(i)] *= 5;
      }
    }
    for (int h = 0; h < shape_.kv_heads; ++h) {
      for (int i = 0; i < n;) {
        int64_t position = first + i;
        int slot = static_cast<int>(position % kKvBlock);
        int count = std::min(n - i, kKvBlock - slot);
        std::byte* data = list_->at(position).data;
        const float* k = rows.data() + i * stride + h * dim;
        AttentionHead to = head(h);
        ops_.store(
            to,
            data + to.key_offset,
            data + to.value_offset,
            slot,
            count,
            k,
            k + shape_.kv_heads * dim,
            stride);
        i += count;
      }
    }
    for (int i = 0; i < n; ++i) {
      const float* row = rows.data() + i * stride;
      rows_.emplace_back(row, row + 2 * shape_.kv_heads * dim);
      for (int part = 0; part < 2 * shape_.kv_heads && coded(); ++part) {
        as_coded(layout_.key_type, rows_.back().data() + part * dim, dim);
      }
    }
  }

  // q: [group][head_dim]
  std::vector<double> reference(int h, const float* q, int64_t position) const {
    const int dim = shape_.head_dim;
    std::vector<double> out(shape_.group * dim);
    for (int g = 0; g < shape_.group; ++g) {
      std::vector<double> scores(position + 1, -INFINITY);
      double highest = -INFINITY;
      for (int64_t p = 0; p <= position; ++p) {
        if (span_.window > 0 && p >= span_.keep && p <= position - span_.window) {
          continue;
        }
        double score = 0;
        for (int d = 0; d < dim; ++d) {
          score += static_cast<double>(q[g * dim + d]) * rows_[p][h * dim + d];
        }
        scores[p] = score;
        highest = std::max(highest, score);
      }
      double total = 0;
      for (double& score : scores) {
        score = std::exp(score - highest);
        total += score;
      }
      for (int64_t p = 0; p <= position; ++p) {
        for (int d = 0; d < dim; ++d) {
          out[g * dim + d] += scores[p] / total * rows_[p][(shape_.kv_heads + h) * dim + d];
        }
      }
    }
    return out;
  }

 private:
  bool coded() const {
    return layout_.key_type == KvType::q8 || layout_.key_type == KvType::q4;
  }

  // To what the storage type holds exactly, so that the test measures arithmetic, not rounding.
  float rounded(float x) const {
    const KvType type = layout_.key_type;
    const int bits = type == KvType::f32 || coded() ? 24 : type == KvType::f16 ? 11 : 8;
    int exponent = 0;
    float mantissa = std::frexp(x, &exponent);
    return std::ldexp(std::nearbyint(std::ldexp(mantissa, bits)), exponent - bits);
  }

  const AttentionOps& ops_;
  Shape shape_;
  KvSpan span_;
  KvLayout layout_;
  std::unique_ptr<KvStore> store_;
  std::shared_ptr<const KvBlocks> list_;
  std::mt19937 random_;
  std::normal_distribution<float> normal_{0, 1};
  std::vector<std::vector<float>> rows_;  // [length][keys of all heads, values of all heads]
};

std::vector<float> queries(size_t n, unsigned seed, int head_dim) {
  std::mt19937 random(seed);
  // Scores of spread 2: some positions clearly win, none takes all.
  std::normal_distribution<float> normal(0, 2 / std::sqrt(static_cast<float>(head_dim)));
  std::vector<float> q(n);
  for (float& x : q) {
    x = normal(random);
  }
  return q;
}

void expect_close(
    const float* got, const std::vector<double>& want, double tolerance, const std::string& what) {
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], tolerance) << what << " element " << i;
  }
}

// A number on the edge between two codes may get either.
double code_tolerance(KvType type) {
  return type == KvType::q4 ? 1e-2 : type == KvType::q8 ? 1e-3 : 0;
}

void check_row(
    const AttentionOps& ops, const Sequence& sequence, Shape shape, const std::string& what) {
  for (int h = 0; h < shape.kv_heads; ++h) {
    AttentionHead head = sequence.head(h);
    std::vector<float> q = queries(shape.group * shape.head_dim, h + 1, shape.head_dim);
    RowParts parts = row_parts(head.block_count);
    std::vector<float> partials(parts.count * partial_size(head), NAN);
    for (int i = 0; i < parts.count; ++i) {
      ops.attend_row(
          head,
          q.data(),
          sequence.length() - 1,
          i * parts.blocks,
          std::min((i + 1) * parts.blocks, head.block_count),
          partials.data() + i * partial_size(head));
    }
    std::vector<float> out(q.size(), NAN);
    ops.merge(head, partials.data(), parts.count, out.data());
    expect_close(
        out.data(),
        sequence.reference(h, q.data(), sequence.length() - 1),
        1e-5 + code_tolerance(head.key_type),
        what);
  }
}

// AMX weighs values in bf16.
double rows_tolerance(const AttentionOps& ops) {
  const bool amx = std::ranges::find(available_paths(), CpuPath::amx) != available_paths().end();
  return amx && &ops == &attention_ops(CpuPath::amx) ? 2e-2 : 1e-5;
}

void check_rows(
    const AttentionOps& ops,
    const Sequence& sequence,
    Shape shape,
    int rows,
    const std::string& what) {
  const int64_t first = sequence.length() - rows;
  // The numbers behind codes are up to five times as large.
  const bool coded = code_tolerance(sequence.head(0).key_type) > 0;
  const double tolerance = rows_tolerance(ops) * (coded ? 5 : 1);
  for (int h = 0; h < shape.kv_heads; ++h) {
    AttentionHead head = sequence.head(h);
    const int64_t stride = shape.group * shape.head_dim + 5;
    std::vector<float> q = queries(rows * stride, 17 + h, shape.head_dim);
    std::vector<float> out(rows * stride, -3.0f);
    Bytes workspace = aligned(ops.rows_workspace(head, rows));
    ops.attend_rows(head, q.data(), stride, rows, first, out.data(), stride, workspace.get());
    for (int r = 0; r < rows; ++r) {
      expect_close(
          out.data() + r * stride,
          sequence.reference(h, q.data() + r * stride, first + r),
          tolerance + code_tolerance(head.key_type),
          what + " row " + std::to_string(r));
      for (int i = 0; i < 5; ++i) {
        ASSERT_EQ(out[r * stride + shape.group * shape.head_dim + i], -3.0f) << "wrote past a row";
      }
    }
  }
}

std::string describe(Shape shape, KvType type, KvSpan span) {
  return std::to_string(shape.kv_heads) + "x" + std::to_string(shape.group) + "x" +
         std::to_string(shape.head_dim) + " type " + std::to_string(static_cast<int>(type)) +
         " keep " + std::to_string(span.keep) + " window " + std::to_string(span.window);
}

constexpr KvType kTypes[] = {KvType::f32, KvType::f16, KvType::bf16, KvType::q8, KvType::q4};

TEST_P(Attention, SingleRowsAtEveryLength) {
  const AttentionOps& ops = attention_ops(GetParam());
  for (Shape shape : kShapes) {
    for (KvType type : kTypes) {
      Sequence sequence(ops, shape, type, {}, 1);
      for (int step : {1, 1, 29, 1, 1, 31, 64, 1, 5, 200, 1}) {
        sequence.append(step);
        check_row(ops, sequence, shape, describe(shape, type, {}));
      }
    }
  }
}

TEST_P(Attention, RowsOfAPromptInChunks) {
  const AttentionOps& ops = attention_ops(GetParam());
  for (Shape shape : kShapes) {
    for (KvType type : kTypes) {
      Sequence sequence(ops, shape, type, {}, 2);
      for (int rows : {1, 7, 40, 33, 64, 9}) {
        sequence.append(rows);
        check_rows(ops, sequence, shape, rows, describe(shape, type, {}));
      }
    }
  }
}

TEST_P(Attention, WindowsAndKeptFirstTokens) {
  const AttentionOps& ops = attention_ops(GetParam());
  Shape shape = {1, 3, 64};
  for (KvType type : kTypes) {
    for (KvSpan span :
         {KvSpan{0, 1},
          KvSpan{0, 7},
          KvSpan{0, 32},
          KvSpan{0, 100},
          KvSpan{4, 28},
          KvSpan{4, 200},
          KvSpan{40, 10},
          KvSpan{64, 64}}) {
      Sequence sequence(ops, shape, type, span, 3);
      for (int rows : {5, 1, 40, 1, 1, 64, 1, 64, 64, 1, 30, 64, 64, 64, 1}) {
        sequence.append(rows);
        check_rows(ops, sequence, shape, rows, describe(shape, type, span));
        check_row(ops, sequence, shape, describe(shape, type, span));
      }
    }
  }
}

// Scores that differ by hundreds: the running maximum must be carried right through blocks and
// parts.
TEST_P(Attention, LargeScores) {
  const AttentionOps& ops = attention_ops(GetParam());
  Shape shape = {1, 2, 64};
  Sequence sequence(ops, shape, KvType::f16, {}, 4);
  sequence.append(600);
  AttentionHead head = sequence.head(0);
  std::vector<float> q = queries(128, 5, 64);
  for (float& x : q) {
    x *= 60;
  }
  std::vector<double> want = sequence.reference(0, q.data(), 599);
  RowParts parts = row_parts(head.block_count);
  ASSERT_GT(parts.count, 1);
  std::vector<float> partials(parts.count * partial_size(head), NAN);
  for (int i = 0; i < parts.count; ++i) {
    ops.attend_row(
        head,
        q.data(),
        599,
        i * parts.blocks,
        std::min((i + 1) * parts.blocks, head.block_count),
        partials.data() + i * partial_size(head));
  }
  std::vector<float> out(128, NAN);
  ops.merge(head, partials.data(), parts.count, out.data());
  expect_close(out.data(), want, 1e-3, "row");
  Bytes workspace = aligned(ops.rows_workspace(head, 1));
  std::vector<float> rows_out(128, NAN);
  ops.attend_rows(head, q.data(), 128, 1, 599, rows_out.data(), 128, workspace.get());
  // Scores near 500 carry 2^-16 of the queries as errors of 0.01.
  expect_close(rows_out.data(), want, 2e-2, "rows");
}

TEST_P(Attention, SixteenBitStorageRoundsToNearestAndSaturates) {
  const AttentionOps& ops = attention_ops(GetParam());
  AttentionHead head;
  head.head_dim = 16;
  head.value_width = 16;
  std::vector<float> k = {
      1.0f,
      1.00048828125f,
      1.0009765625f,
      -1.00146484375f,
      1e6f,
      -1e6f,
      65504.0f,
      65520.0f,
      6e-8f,
      2e-8f,
      0.0f,
      -0.0f,
      1e-5f,
      0.333333333f,
      3.14159265f,
      -2.71828183f};
  std::vector<uint16_t> want_f16 = {
      0x3c00,
      0x3c00,
      0x3c01,
      0xbc02,
      0x7bff,
      0xfbff,
      0x7bff,
      0x7bff,
      0x0001,
      0x0000,
      0x0000,
      0x8000,
      0x00a8,
      0x3555,
      0x4248,
      0xc170};
  Bytes keys = aligned(16 * kKvBlock * 2);
  Bytes values = aligned(16 * kKvBlock * 2);
  head.key_type = head.value_type = KvType::f16;
  ops.store(head, keys.get(), values.get(), 5, 1, k.data(), k.data(), 16);
  for (int d = 0; d < 16; ++d) {
    EXPECT_EQ(reinterpret_cast<uint16_t*>(keys.get())[d * kKvBlock + 5], want_f16[d]) << k[d];
    EXPECT_EQ(reinterpret_cast<uint16_t*>(values.get())[5 * 16 + d], want_f16[d]) << k[d];
  }
  head.key_type = head.value_type = KvType::bf16;
  ops.store(head, keys.get(), values.get(), 5, 1, k.data(), k.data(), 16);
  EXPECT_EQ(reinterpret_cast<uint16_t*>(values.get())[5 * 16 + 14], 0x4049);
  EXPECT_EQ(reinterpret_cast<uint16_t*>(values.get())[5 * 16 + 13], 0x3eab);
}

TEST(RowParts, CoverAllBlocksAndDependOnLengthOnly) {
  for (int blocks = 1; blocks < 3000; ++blocks) {
    RowParts parts = row_parts(blocks);
    ASSERT_GE(parts.count * parts.blocks, blocks);
    ASSERT_LT((parts.count - 1) * parts.blocks, blocks);
    ASSERT_LE(parts.count, 16);
  }
}

}  // namespace
}  // namespace quince::kernels
