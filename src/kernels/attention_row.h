// Attention of a single row over a stretch of blocks, and the merge of several stretches. For the
// instruction set of the including file; see elementwise_simd.h on linkage.
#pragma once

#include "kernels/attention_softmax.h"
#include "kernels/attention_tables.h"

namespace quince::kernels {
namespace {

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

}  // namespace
}  // namespace quince::kernels
