// How the numbers of cached keys and values are stored. Read by every instruction set's kernels, so
// what is inline here has internal linkage (see elementwise_simd.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace quince::kernels {

// q8, q4: codes of 8 or 4 bits and a bf16 scale for kKvGroup dimensions of a position, 8.5 or 4.5
// bits a number.
enum class KvType : uint8_t { f32, f16, bf16, q8, q4 };
constexpr int kKvGroup = 32;
constexpr int kLongestCodedHead = 1024;  // head_dim

namespace {

constexpr bool is_coded(KvType type) {
  return type == KvType::q8 || type == KvType::q4;
}

constexpr int kv_groups(int width) {
  return (width + kKvGroup - 1) / kKvGroup;
}

// Of a position, without scales.
constexpr size_t kv_code_bytes(KvType type, int width) {
  return type == KvType::q8 ? static_cast<size_t>(width)
                            : static_cast<size_t>(kv_groups(width)) * 16;
}

}  // namespace
}  // namespace quince::kernels
