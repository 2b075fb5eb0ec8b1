// Attention of many rows of one sequence in f32 arithmetic. For the instruction set of the
// including file; see elementwise_simd.h on linkage.
#pragma once

#include "kernels/attention_softmax.h"
#include "kernels/attention_tables.h"

namespace quince::kernels {
namespace {

constexpr int kGemmRows = kLanes == 16 ? 12 : 6;
constexpr int kGemmVectors = kLanes == 16 ? 2 : kLanes == 8 ? 2 : 4;

template <int M, int N, bool kAdd>
void gemm_tile(
    const float* a, int64_t lda, const float* b, int64_t ldb, float* c, int64_t ldc, int k) {
  F acc[M][N];
  for (int i = 0; i < M; ++i) {
    for (int j = 0; j < N; ++j) {
      acc[i][j] = kAdd ? load(c + i * ldc + j * kLanes) : zero();
    }
  }
  for (int p = 0; p < k; ++p) {
    F row[N];
    for (int j = 0; j < N; ++j) {
      row[j] = load(b + p * ldb + j * kLanes);
    }
    for (int i = 0; i < M; ++i) {
      F x = splat(a[i * lda + p]);
      for (int j = 0; j < N; ++j) {
        acc[i][j] = fma(x, row[j], acc[i][j]);
      }
    }
  }
  for (int i = 0; i < M; ++i) {
    for (int j = 0; j < N; ++j) {
      store(c + i * ldc + j * kLanes, acc[i][j]);
    }
  }
}

// c[m, n] (+)= a[m, k] b[k, n]; n is a multiple of 16.
template <bool kAdd>
void gemm(
    const float* a,
    int64_t lda,
    const float* b,
    int64_t ldb,
    float* c,
    int64_t ldc,
    int m,
    int n,
    int k) {
  constexpr int kStep = kGemmVectors * kLanes;
  constexpr int kNarrow = kLanes == 16 ? 1 : kGemmVectors;  // vectors that divide 16 columns
  for (int j = 0; j < n;) {
    bool wide = j + kStep <= n;
    int i = 0;
    for (; i + kGemmRows <= m; i += kGemmRows) {
      const float* rows = a + i * lda;
      float* out = c + i * ldc + j;
      if (wide) {
        gemm_tile<kGemmRows, kGemmVectors, kAdd>(rows, lda, b + j, ldb, out, ldc, k);
      } else {
        gemm_tile<kGemmRows, kNarrow, kAdd>(rows, lda, b + j, ldb, out, ldc, k);
      }
    }
    for (; i < m; ++i) {
      if (wide) {
        gemm_tile<1, kGemmVectors, kAdd>(a + i * lda, lda, b + j, ldb, c + i * ldc + j, ldc, k);
      } else {
        gemm_tile<1, kNarrow, kAdd>(a + i * lda, lda, b + j, ldb, c + i * ldc + j, ldc, k);
      }
    }
    j += wide ? kStep : kNarrow * kLanes;
  }
}

// Where attend_rows keeps its things, in floats from the start of the workspace.
struct RowsWorkspace {
  int64_t queries, scores, outputs, maxima, totals, block, end;
  RowsWorkspace(const AttentionHead& head, int rows) {
    auto aligned = [](int64_t floats) { return (floats + 15) / 16 * 16; };
    int64_t n = static_cast<int64_t>(rows) * head.group;
    int64_t longest = head.head_dim > head.value_width ? head.head_dim : head.value_width;
    queries = 0;
    scores = queries + aligned(n * head.head_dim);
    outputs = scores + n * kSpan;
    maxima = outputs + n * head.value_width;
    totals = maxima + aligned(n);
    block = totals + aligned(n);  // one block of keys or values as floats
    end = block + longest * kKvBlock;
  }
};

void attend_rows(
    const AttentionHead& head,
    const float* q,
    int64_t q_stride,
    int rows,
    int64_t first_position,
    float* out,
    int64_t out_stride,
    std::byte* workspace) {
  const int dim = head.head_dim;
  const int width = head.value_width;
  const int group = head.group;
  const int n = rows * group;  // row r of query head g is number r * group + g
  const int64_t last_position = first_position + rows - 1;
  const RowsWorkspace at(head, rows);
  float* memory = reinterpret_cast<float*>(workspace);
  float* queries = memory + at.queries;  // [n][dim]
  float* scores = memory + at.scores;    // [n][kSpan]
  float* outputs = memory + at.outputs;  // [n][width]
  float* maxima = memory + at.maxima;
  float* totals = memory + at.totals;

  for (int r = 0; r < rows; ++r) {
    memcpy(queries + r * group * dim, q + r * q_stride, sizeof(float) * group * dim);
  }
  for (int i = 0; i < n && is_coded(head.key_type); ++i) {
    turn_row(queries + i * dim, dim);
  }
  memset(outputs, 0, sizeof(float) * n * width);
  for (int i = 0; i < n; ++i) {
    maxima[i] = -kInfinity;
    totals[i] = 0;
  }

  for (int b = 0; b < head.block_count;) {
    const KvBlock* blocks[kSpanBlocks];
    int count = 0;
    for (const int end = span_end(head, b); b < end; ++b) {
      if (block_matters(head.span, head.blocks[b].start, first_position, last_position)) {
        blocks[count++] = &head.blocks[b];
      }
    }
    if (count == 0) {
      continue;
    }
    for (int i = 0; i < count; ++i) {
      const std::byte* stored = blocks[i]->data + head.key_offset;
      const float* keys = keys_as_floats(head.key_type, stored, dim, width, memory + at.block);
      gemm<false>(queries, dim, keys, kKvBlock, scores + i * kKvBlock, kSpan, n, kKvBlock, dim);
    }
    for (int r = 0; r < rows; ++r) {
      for (int g = 0; g < group; ++g) {
        int row = r * group + g;
        float* score = scores + static_cast<int64_t>(row) * kSpan;
        for (int i = 0; i < count; ++i) {
          hide(score + i * kKvBlock, visible_bits(head.span, blocks[i]->start, first_position + r));
        }
        softmax_step(
            score,
            count * kKvBlock,
            maxima[row],
            totals[row],
            outputs + static_cast<int64_t>(row) * width,
            width);
      }
    }
    for (int i = 0; i < count; ++i) {
      const std::byte* stored = blocks[i]->data + head.value_offset;
      const float* values = values_as_floats(head.value_type, stored, width, memory + at.block);
      gemm<true>(scores + i * kKvBlock, kSpan, values, width, outputs, width, n, width, kKvBlock);
    }
  }

  for (int r = 0; r < rows; ++r) {
    for (int g = 0; g < group; ++g) {
      int row = r * group + g;
      F factor = splat(1.0f / totals[row]);
      const float* from = outputs + static_cast<int64_t>(row) * width;
      float* to = out + r * out_stride + static_cast<int64_t>(g) * dim;
      for_vectors(dim, [&](int64_t j, int count) {
        store_n(to + j, mul(load_n(from + j, count), factor), count);
      });
      if (is_coded(head.value_type)) {
        turn_row_back(to, dim);
      }
    }
  }
}

size_t rows_workspace(const AttentionHead& head, int rows) {
  return RowsWorkspace(head, rows).end * sizeof(float);
}

}  // namespace
}  // namespace quince::kernels
