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
template <typename Keys, int G>
void row_scores(const Keys& keys, const std::byte* values, const float* q, int dim, float* scores) {
  constexpr int kStep = kPositionVectors * kLanes;
  constexpr int kChains = G == 1 ? 2 : 1;  // a single query needs more independent sums
  for (int c = 0; c < kKvBlock; c += kStep) {
    F total[G][kPositionVectors];
    for (int d0 = 0; d0 < dim; d0 += kKvGroup) {
      const int end = d0 + kKvGroup < dim ? d0 + kKvGroup : dim;
      F acc[kChains][G][kPositionVectors];
      for (int u = 0; u < kChains; ++u) {
        for (int g = 0; g < G; ++g) {
          for (int j = 0; j < kPositionVectors; ++j) {
            acc[u][g][j] = !Keys::kScaled && u == 0 && d0 > 0 ? total[g][j] : zero();
          }
        }
      }
      int d = d0;
      for (; d + kChains <= end; d += kChains) {
        for (int u = 0; u < kChains; ++u) {
          if (c == 0) {
            const auto* line = static_cast<const std::byte*>(keys.line(d + u));
            for (int i = 0; i < Keys::kLineBytes; i += 64) {
              prefetch_ahead(line + i);
              __builtin_prefetch(values + static_cast<int64_t>(d + u) * Keys::kLineBytes + i);
            }
          }
          F k[kPositionVectors];
          for (int j = 0; j < kPositionVectors; ++j) {
            k[j] = keys.vector(d + u, c + j * kLanes);
          }
          for (int g = 0; g < G; ++g) {
            F query = splat(q[g * dim + d + u]);
            for (int j = 0; j < kPositionVectors; ++j) {
              acc[u][g][j] = fma(query, k[j], acc[u][g][j]);
            }
          }
        }
      }
      for (; d < end; ++d) {
        for (int g = 0; g < G; ++g) {
          for (int j = 0; j < kPositionVectors; ++j) {
            F k = keys.vector(d, c + j * kLanes);
            acc[0][g][j] = fma(splat(q[g * dim + d]), k, acc[0][g][j]);
          }
        }
      }
      for (int g = 0; g < G; ++g) {
        for (int j = 0; j < kPositionVectors; ++j) {
          F sum = kChains == 2 ? add(acc[0][g][j], acc[kChains - 1][g][j]) : acc[0][g][j];
          if constexpr (Keys::kScaled) {
            const F before = d0 > 0 ? total[g][j] : zero();
            total[g][j] = fma(sum, keys.scale(d0, c + j * kLanes), before);
          } else {
            total[g][j] = sum;
          }
        }
      }
    }
    for (int g = 0; g < G; ++g) {
      for (int j = 0; j < kPositionVectors; ++j) {
        store(scores + g * kSpan + c + j * kLanes, total[g][j]);
      }
    }
  }
}

template <typename Values, int G, int V>
void row_values_chunk(
    const Values& values, int first, int width, const float* weights, float* accumulator) {
  F acc[G][V];
  for (int g = 0; g < G; ++g) {
    for (int j = 0; j < V; ++j) {
      acc[g][j] = load(accumulator + g * width + j * kLanes);
    }
  }
  for (int p = 0; p < kKvBlock; ++p) {
    F v[V];
    for (int j = 0; j < V; ++j) {
      v[j] = values.vector(p, first + j * kLanes);
      if constexpr (Values::kScaled) {
        v[j] = mul(v[j], splat(values.scale(p, first + j * kLanes)));
      }
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
template <typename Values, int G>
void row_values(const Values& values, int width, const float* weights, float* accumulator) {
  constexpr int kWide = kValueVectors * kLanes;
  constexpr int kNarrow = kLanes == 16                  ? 1
                          : 16 / kLanes < kValueVectors ? 16 / kLanes
                                                        : kValueVectors;
  int i = 0;
  for (; i + kWide <= width; i += kWide) {
    row_values_chunk<Values, G, kValueVectors>(values, i, width, weights, accumulator + i);
  }
  for (; i < width; i += kNarrow * kLanes) {
    row_values_chunk<Values, G, kNarrow>(values, i, width, weights, accumulator + i);
  }
}

// Query heads [g0, g0 + G) of a row; q: theirs.
template <int G>
void row_heads(
    const AttentionHead& head,
    const float* q,
    int64_t position,
    int first_block,
    int last_block,
    int g0,
    float* partial) {
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
    const std::byte* values[kSpanBlocks];
    int count = 0;
    for (; b < last_block && count < kSpanBlocks; ++b) {
      const KvBlock& block = head.blocks[b];
      uint32_t bits = visible_bits(head.span, block.start, position);
      if (bits == 0) {
        continue;
      }
      float* block_scores = scores + count * kKvBlock;
      values[count] = block.data + head.value_offset;
      with_keys(head.key_type, [&]<typename Keys>() {
        row_scores<Keys, G>(
            Keys(block.data + head.key_offset, width),
            values[count],
            q,
            head.head_dim,
            block_scores);
      });
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
      with_values(head.value_type, [&]<typename Values>() {
        row_values<Values, G>(Values(values[i], width), width, scores + i * kKvBlock, accumulator);
      });
    }
  }
}

void attend_row(
    const AttentionHead& head,
    const float* q,
    int64_t position,
    int first_block,
    int last_block,
    float* partial) {
  for (int g = 0; g < head.group; g += kAtOnce) {
    const float* query = q + static_cast<int64_t>(g) * head.head_dim;
    alignas(64) float turned[kAtOnce * kLongestCodedHead];
    const int heads = head.group - g < kAtOnce ? head.group - g : kAtOnce;
    if (is_coded(head.key_type)) {
      const int dim = head.head_dim;
      memcpy(turned, query, sizeof(float) * static_cast<size_t>(heads * dim));
      for (int i = 0; i < heads; ++i) {
        turn_row(turned + i * dim, dim);
      }
      query = turned;
    }
    switch (heads) {
      case 1:
        row_heads<1>(head, query, position, first_block, last_block, g, partial);
        break;
      case 2:
        row_heads<2>(head, query, position, first_block, last_block, g, partial);
        break;
      case 3:
        row_heads<3>(head, query, position, first_block, last_block, g, partial);
        break;
      default:
        row_heads<kAtOnce>(head, query, position, first_block, last_block, g, partial);
        break;
    }
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
    if (is_coded(head.value_type)) {
      turn_row_back(row, head.head_dim);
    }
  }
}

}  // namespace
}  // namespace quince::kernels
