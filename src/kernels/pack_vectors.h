// 128-bit vectors of the compiler's own kind: every processor we run on has them in its base
// instruction set (SSE2, NEON), so packing needs no files per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace quince::kernels {

typedef uint8_t Bytes16 __attribute__((vector_size(16)));
typedef uint32_t Words4 __attribute__((vector_size(16)));

inline Bytes16 load16(const void* at) {
  Bytes16 v;
  std::memcpy(&v, at, sizeof(v));
  return v;
}

inline void store16(void* at, Words4 v) {
  std::memcpy(at, &v, sizeof(v));
}

// Rows become columns.
inline void transpose4(Words4 (&v)[4]) {
  const Words4 a = __builtin_shufflevector(v[0], v[1], 0, 4, 1, 5);
  const Words4 b = __builtin_shufflevector(v[2], v[3], 0, 4, 1, 5);
  const Words4 c = __builtin_shufflevector(v[0], v[1], 2, 6, 3, 7);
  const Words4 d = __builtin_shufflevector(v[2], v[3], 2, 6, 3, 7);
  v[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
  v[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
  v[2] = __builtin_shufflevector(c, d, 0, 1, 4, 5);
  v[3] = __builtin_shufflevector(c, d, 2, 3, 6, 7);
}

}  // namespace quince::kernels
