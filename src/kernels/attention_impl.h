// AttentionOps for the instruction set of the including file; see elementwise_simd.h on linkage.
#pragma once

#include "kernels/attention_softmax.h"
#include "kernels/attention_tables.h"

namespace quince::kernels {
namespace {

// --- storing -------------------------------------------------------------------------------------

template <typename T>
void store_as(
    const AttentionHead& head,
    std::byte* keys,
    std::byte* values,
    int slot,
    int rows,
    const float* k,
    const float* v,
    int64_t stride) {
  using Bits = typename T::Bits;
  constexpr int kDims = 16;  // keys are turned in small tiles: reads and writes both stay in lines
  auto* key = reinterpret_cast<Bits*>(keys) + slot;  // [head_dim][kKvBlock]
  auto* value = reinterpret_cast<Bits*>(values) + static_cast<int64_t>(slot) * head.value_width;
  Bits tile[kKvBlock][kDims];
  for (int d = 0; d < head.head_dim; d += kDims) {
    const int dims = head.head_dim - d < kDims ? head.head_dim - d : kDims;
    for (int r = 0; r < rows; ++r) {
      const float* from = k + r * stride + d;
      for_vectors(dims, [&](int64_t i, int count) {
        T::store_vector(tile[r] + i, load_n(from + i, count));
      });
    }
    for (int i = 0; i < dims; ++i) {
      Bits* to = key + static_cast<int64_t>(d + i) * kKvBlock;
      for (int r = 0; r < rows; ++r) {
        to[r] = tile[r][i];
      }
    }
  }
  for (int r = 0; r < rows; ++r) {
    const float* from = v + r * stride;
    Bits* to = value + static_cast<int64_t>(r) * head.value_width;
    for_vectors(head.head_dim, [&](int64_t i, int count) {
      T::store_vector(to + i, load_n(from + i, count));  // what is behind head_dim becomes 0
    });
  }
}

void store_rows(
    const AttentionHead& head,
    std::byte* keys,
    std::byte* values,
    int slot,
    int rows,
    const float* k,
    const float* v,
    int64_t stride) {
  switch (head.type) {
    case KvType::f32:
      return store_as<StoredF32>(head, keys, values, slot, rows, k, v, stride);
    case KvType::f16:
      return store_as<StoredF16>(head, keys, values, slot, rows, k, v, stride);
    case KvType::bf16:
      return store_as<StoredBf16>(head, keys, values, slot, rows, k, v, stride);
  }
}

// --- one row
// ---------------------------------------------------------------------------------------

constexpr int kAtOnce = 4;  // query heads that share the loads of a key or value

// Vectors of positions, and of value dimensions, handled together: as many as registers allow.
constexpr int kPositionVectors = kLanes == 16 ? 2 : kLanes == 8 ? 2 : 4;
constexpr int kValueVectors = kLanes == 16 ? 4 : kLanes == 8 ? 2 : 4;

// Asks for memory ahead of a run that is read line by line.
inline void prefetch_ahead(const void* p) {
  constexpr int kAhead = 2048;
  __builtin_prefetch(static_cast<const char*>(p) + kAhead);
}

// scores[g][position] = q[g] . key[position] over one block; rows of scores are kSpan apart. The
// block's values are asked for meanwhile: they come next, and row_values does not read them in
// order.
template <typename T, int G>
void row_scores(
    const typename T::Bits* keys,
    const typename T::Bits* values,
    const float* q,
    int dim,
    float* scores) {
  constexpr int kStep = kPositionVectors * kLanes;
  constexpr int kChains = G == 1 ? 2 : 1;  // a single query needs more independent sums
  for (int c = 0; c < kKvBlock; c += kStep) {
    F acc[kChains][G][kPositionVectors];
    for (auto& chain : acc) {
      for (auto& row : chain) {
        for (F& a : row) {
          a = zero();
        }
      }
    }
    int d = 0;
    for (; d + kChains <= dim; d += kChains) {
      for (int u = 0; u < kChains; ++u) {
        const auto* row = keys + static_cast<int64_t>(d + u) * kKvBlock + c;
        if (c == 0) {
          constexpr int kLine = 64 / sizeof(*row);
          for (int i = 0; i < kKvBlock; i += kLine) {
            prefetch_ahead(row + i);
            __builtin_prefetch(values + static_cast<int64_t>(d + u) * kKvBlock + i);
          }
        }
        F k[kPositionVectors];
        for (int j = 0; j < kPositionVectors; ++j) {
          k[j] = T::load_vector(row + j * kLanes);
        }
        for (int g = 0; g < G; ++g) {
          F query = splat(q[g * dim + d + u]);
          for (int j = 0; j < kPositionVectors; ++j) {
            acc[u][g][j] = fma(query, k[j], acc[u][g][j]);
          }
        }
      }
    }
    for (; d < dim; ++d) {
      for (int g = 0; g < G; ++g) {
        for (int j = 0; j < kPositionVectors; ++j) {
          F k = T::load_vector(keys + static_cast<int64_t>(d) * kKvBlock + c + j * kLanes);
          acc[0][g][j] = fma(splat(q[g * dim + d]), k, acc[0][g][j]);
        }
      }
    }
    for (int g = 0; g < G; ++g) {
      for (int j = 0; j < kPositionVectors; ++j) {
        F total = kChains == 2 ? add(acc[0][g][j], acc[kChains - 1][g][j]) : acc[0][g][j];
        store(scores + g * kSpan + c + j * kLanes, total);
      }
    }
  }
}

template <typename T, int G, int V>
void row_values_chunk(
    const typename T::Bits* values, int width, const float* weights, float* accumulator) {
  F acc[G][V];
  for (int g = 0; g < G; ++g) {
    for (int j = 0; j < V; ++j) {
      acc[g][j] = load(accumulator + g * width + j * kLanes);
    }
  }
  for (int p = 0; p < kKvBlock; ++p) {
    const auto* row = values + static_cast<int64_t>(p) * width;
    F v[V];
    for (int j = 0; j < V; ++j) {
      v[j] = T::load_vector(row + j * kLanes);
    }
    for (int g = 0; g < G; ++g) {
      F weight = splat(weights[g * kSpan + p]);
      for (int j = 0; j < V; ++j) {
        acc[g][j] = fma(weight, v[j], acc[g][j]);
      }
    }
  }
  for (int g = 0; g < G; ++g) {
    for (int j = 0; j < V; ++j) {
      store(accumulator + g * width + j * kLanes, acc[g][j]);
    }
  }
}

// accumulator[g] += sum over a block's positions of weights[g][position] * value[position].
template <typename T, int G>
void row_values(
    const typename T::Bits* values, int width, const float* weights, float* accumulator) {
  constexpr int kWide = kValueVectors * kLanes;
  constexpr int kNarrow = kLanes == 16                  ? 1
                          : 16 / kLanes < kValueVectors ? 16 / kLanes
                                                        : kValueVectors;
  int i = 0;
  for (; i + kWide <= width; i += kWide) {
    row_values_chunk<T, G, kValueVectors>(values + i, width, weights, accumulator + i);
  }
  for (; i < width; i += kNarrow * kLanes) {
    row_values_chunk<T, G, kNarrow>(values + i, width, weights, accumulator + i);
  }
}

// Query heads [g0, g0 + G) of a row.
template <typename T, int G>
void row_heads(
    const AttentionHead& head,
    const float* q,
    int64_t position,
    int first_block,
    int last_block,
    int g0,
    float* partial) {
  using Bits = typename T::Bits;
  const int width = head.value_width;
  float* accumulator = partial + g0 * width;
  float* maximum = partial + head.group * width + g0;
  float* total = maximum + head.group;
  for (int i = 0; i < G * width; i += kLanes) {
    store(accumulator + i, zero());
  }
  for (int g = 0; g < G; ++g) {
    maximum[g] = -kInfinity;
    total[g] = 0;
  }
  alignas(64) float scores[G * kSpan];
  for (int b = first_block; b < last_block;) {
    const Bits* values[kSpanBlocks];
    int count = 0;
    for (; b < last_block && count < kSpanBlocks; ++b) {
      const KvBlock& block = head.blocks[b];
      uint32_t bits = visible_bits(head.span, block.start, position);
      if (bits == 0) {
        continue;
      }
      float* block_scores = scores + count * kKvBlock;
      values[count] = reinterpret_cast<const Bits*>(block.data + head.value_offset);
      row_scores<T, G>(
          reinterpret_cast<const Bits*>(block.data + head.key_offset),
          values[count],
          q + g0 * head.head_dim,
          head.head_dim,
          block_scores);
      for (int g = 0; g < G; ++g) {
        hide(block_scores + g * kSpan, bits);
      }
      ++count;
    }
    for (int g = 0; g < G && count > 0; ++g) {
      softmax_step(
          scores + g * kSpan,
          count * kKvBlock,
          maximum[g],
          total[g],
          accumulator + g * width,
          width);
    }
    for (int i = 0; i < count; ++i) {
      row_values<T, G>(values[i], width, scores + i * kKvBlock, accumulator);
    }
  }
}

template <typename T>
void row_as(
    const AttentionHead& head,
    const float* q,
    int64_t position,
    int first_block,
    int last_block,
    float* partial) {
  int g = 0;
  for (; g + kAtOnce <= head.group; g += kAtOnce) {
    row_heads<T, kAtOnce>(head, q, position, first_block, last_block, g, partial);
  }
  switch (head.group - g) {
    case 1:
      return row_heads<T, 1>(head, q, position, first_block, last_block, g, partial);
    case 2:
      return row_heads<T, 2>(head, q, position, first_block, last_block, g, partial);
    case 3:
      return row_heads<T, 3>(head, q, position, first_block, last_block, g, partial);
    default:
      return;
  }
}

void attend_row(
    const AttentionHead& head,
    const float* q,
    int64_t position,
    int first_block,
    int last_block,
    float* partial) {
  switch (head.type) {
    case KvType::f32:
      return row_as<StoredF32>(head, q, position, first_block, last_block, partial);
    case KvType::f16:
      return row_as<StoredF16>(head, q, position, first_block, last_block, partial);
    case KvType::bf16:
      return row_as<StoredBf16>(head, q, position, first_block, last_block, partial);
  }
}

void merge_parts(const AttentionHead& head, const float* partials, int parts, float* out) {
  const int width = head.value_width;
  const int64_t size = static_cast<int64_t>(head.group) * (width + 2);  // partial_size()
  for (int g = 0; g < head.group; ++g) {
    const float* accumulator = partials + g * width;
    const float* maximum = partials + head.group * width + g;
    const float* total = maximum + head.group;
    float highest = -kInfinity;
    for (int i = 0; i < parts; ++i) {
      highest = maximum[i * size] > highest ? maximum[i * size] : highest;
    }
    float sum_of_parts = 0;
    for (int i = 0; i < parts; ++i) {
      sum_of_parts += total[i * size] * first(exp(splat(maximum[i * size] - highest)));
    }
    float* row = out + static_cast<int64_t>(g) * head.head_dim;
    for (int i = 0; i < parts; ++i) {
      F weight = splat(first(exp(splat(maximum[i * size] - highest))) / sum_of_parts);
      for_vectors(head.head_dim, [&](int64_t j, int count) {
        F before = i == 0 ? zero() : load_n(row + j, count);
        store_n(row + j, fma(weight, load_n(accumulator + i * size + j, count), before), count);
      });
    }
  }
}

// --- many rows
// ------------------------------------------------------------------------------------

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

template <typename T>
const float* as_floats(const std::byte* stored, int n, float* room) {
  if constexpr (sizeof(typename T::Bits) == sizeof(float)) {
    return reinterpret_cast<const float*>(stored);
  } else {
    const auto* bits = reinterpret_cast<const typename T::Bits*>(stored);
    for (int i = 0; i < n; i += kLanes) {
      store(room + i, T::load_vector(bits + i));
    }
    return room;
  }
}

template <typename T>
void rows_as(
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
  memset(outputs, 0, sizeof(float) * n * width);
  for (int i = 0; i < n; ++i) {
    maxima[i] = -kInfinity;
    totals[i] = 0;
  }

  for (int b = 0; b < head.block_count;) {
    const KvBlock* blocks[kSpanBlocks];
    int count = 0;
    for (; b < head.block_count && count < kSpanBlocks; ++b) {
      if (block_matters(head.span, head.blocks[b].start, first_position, last_position)) {
        blocks[count++] = &head.blocks[b];
      }
    }
    if (count == 0) {
      break;
    }
    for (int i = 0; i < count; ++i) {
      const float* keys =
          as_floats<T>(blocks[i]->data + head.key_offset, dim * kKvBlock, memory + at.block);
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
      const float* values =
          as_floats<T>(blocks[i]->data + head.value_offset, width * kKvBlock, memory + at.block);
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
    }
  }
}

void attend_rows(
    const AttentionHead& head,
    const float* q,
    int64_t q_stride,
    int rows,
    int64_t first_position,
    float* out,
    int64_t out_stride,
    std::byte* workspace) {
  switch (head.type) {
    case KvType::f32:
      return rows_as<StoredF32>(
          head, q, q_stride, rows, first_position, out, out_stride, workspace);
    case KvType::f16:
      return rows_as<StoredF16>(
          head, q, q_stride, rows, first_position, out, out_stride, workspace);
    case KvType::bf16:
      return rows_as<StoredBf16>(
          head, q, q_stride, rows, first_position, out, out_stride, workspace);
  }
}

size_t rows_workspace(const AttentionHead& head, int rows) {
  return RowsWorkspace(head, rows).end * sizeof(float);
}

constexpr AttentionOps kAttentionOps = {
    store_rows, attend_row, merge_parts, attend_rows, rows_workspace};

}  // namespace
}  // namespace quince::kernels
