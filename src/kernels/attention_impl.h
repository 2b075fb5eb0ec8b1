// AttentionOps for the instruction set of the including file; see elementwise_simd.h on linkage.
#pragma once

#include "kernels/attention_row.h"
#include "kernels/attention_rows.h"
#include "kernels/attention_softmax.h"
#include "kernels/attention_tables.h"

namespace quince::kernels {
namespace {

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

constexpr AttentionOps kAttentionOps = {
    store_rows, attend_row, merge_parts, attend_rows, rows_workspace};

}  // namespace
}  // namespace quince::kernels
