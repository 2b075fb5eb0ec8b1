// AttentionOps for the instruction set of the including file; see elementwise_simd.h on linkage.
#pragma once

#include "kernels/attention_row.h"
#include "kernels/attention_rows.h"
#include "kernels/attention_softmax.h"
#include "kernels/attention_tables.h"

namespace quince::kernels {
namespace {

// Keys are turned in small tiles: reads and writes both stay in lines.
template <typename T>
void store_keys(std::byte* keys, int slot, int rows, const float* k, int64_t stride, int dim) {
  using Bits = typename T::Bits;
  constexpr int kDims = 16;
  auto* key = reinterpret_cast<Bits*>(keys) + slot;  // [head_dim][kKvBlock]
  Bits tile[kKvBlock][kDims];
  for (int d = 0; d < dim; d += kDims) {
    const int dims = dim - d < kDims ? dim - d : kDims;
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
}

template <typename T>
void store_values(
    std::byte* values, int slot, int rows, const float* v, int64_t stride, int dim, int width) {
  auto* value = reinterpret_cast<typename T::Bits*>(values) + static_cast<int64_t>(slot) * width;
  for (int r = 0; r < rows; ++r) {
    const float* from = v + r * stride;
    typename T::Bits* to = value + static_cast<int64_t>(r) * width;
    for_vectors(dim, [&](int64_t i, int count) {
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
  const int dim = head.head_dim;
  const int width = head.value_width;
  alignas(64) float row[kLongestCodedHead];
  const auto each_row = [&](const float* from, const auto& encode) {
    for (int r = 0; r < rows; ++r) {
      memcpy(row, from + r * stride, sizeof(float) * static_cast<size_t>(dim));
      encode(slot + r);
    }
  };
  switch (head.key_type) {
    case KvType::f32:
      store_keys<StoredF32>(keys, slot, rows, k, stride, dim);
      break;
    case KvType::f16:
      store_keys<StoredF16>(keys, slot, rows, k, stride, dim);
      break;
    case KvType::bf16:
      store_keys<StoredBf16>(keys, slot, rows, k, stride, dim);
      break;
    case KvType::q8:
      each_row(k, [&](int at) { store_coded_key<KvType::q8>(keys, width, at, row, dim); });
      break;
    case KvType::q4:
      each_row(k, [&](int at) { store_coded_key<KvType::q4>(keys, width, at, row, dim); });
      break;
  }
  switch (head.value_type) {
    case KvType::f32:
      return store_values<StoredF32>(values, slot, rows, v, stride, dim, width);
    case KvType::f16:
      return store_values<StoredF16>(values, slot, rows, v, stride, dim, width);
    case KvType::bf16:
      return store_values<StoredBf16>(values, slot, rows, v, stride, dim, width);
    case KvType::q8:
      return each_row(
          v, [&](int at) { store_coded_value<KvType::q8>(values, width, at, row, dim); });
    case KvType::q4:
      return each_row(
          v, [&](int at) { store_coded_value<KvType::q4>(values, width, at, row, dim); });
  }
}

constexpr AttentionOps kAttentionOps = {
    store_rows, attend_row, merge_parts, attend_rows, rows_workspace};

}  // namespace
}  // namespace quince::kernels
