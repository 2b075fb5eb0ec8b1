// What the AVX2 and NEON kernels share, written with the compiler's vector types: it becomes the
// instructions of the file that includes it. Internal linkage, because files with different
// instruction sets include this and the linker must not mix their copies; for the same reason
// nothing here calls an inline function of the standard library.
//
// An Isa supplies the vector width and the integer dot products:
//   static constexpr int kLanes;               floats in a vector, 4 or 8
//   template <kBits, kGroup, kRows> static void dot_chunk(
//       const std::byte* chunk, const int8_t* q, int32_t (&dots)[kGroups][kRows][16]);
// where q[row * 32 ..] are the activations, and codes of 8 bits count from 128: dots are of
// code - 128 then.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/matmul_ahead.h"
#include "kernels/matmul_scales_impl.h"

#pragma clang fp contract(fast)

namespace quince::kernels {
namespace {

template <int kLanes>
struct Vector {
  typedef float Float __attribute__((vector_size(4 * kLanes)));
  typedef int32_t Int __attribute__((vector_size(4 * kLanes)));
  typedef uint32_t Bits __attribute__((vector_size(4 * kLanes)));
  typedef _Float16 Half __attribute__((vector_size(2 * kLanes)));
  typedef uint8_t Bytes __attribute__((vector_size(4 * kLanes)));
};

template <typename V>
inline V load(const void* at) {
  V v;
  __builtin_memcpy(&v, at, sizeof(V));  // any alignment
  return v;
}
template <typename V>
inline void store(void* at, V v) {
  __builtin_memcpy(at, &v, sizeof(V));
}

// ---- codes

// Codes of step kStep for the rows of one vector, from its byte offset inside a 64-byte vector.
template <int kBits, int kStep, typename Bytes>
inline Bytes step_codes(const std::byte* chunk, int offset) {
  const auto vector = [&](int i) { return load<Bytes>(chunk + i * kVector + offset); };
  if constexpr (kBits == 8) {
    return vector(kStep);
  } else if constexpr (kBits >= 4) {
    const Bytes both = vector(kStep / 2);
    const Bytes low = kStep % 2 == 0 ? both & 15 : both >> 4;
    if constexpr (kBits == 5) {
      return low | ((vector(4) >> kStep) & 1) << 4;
    } else if constexpr (kBits == 6) {
      return low | ((vector(4 + kStep / 4) >> (2 * (kStep % 4))) & 3) << 4;
    } else {
      return low;
    }
  } else {
    const Bytes low = (vector(kStep / 4) >> (2 * (kStep % 4))) & 3;
    if constexpr (kBits == 3) {
      return low | ((vector(2) >> kStep) & 1) << 2;
    } else {
      return low;
    }
  }
}

template <int kBits, typename Bytes>
inline void all_codes(const std::byte* chunk, int offset, Bytes (&codes)[kSteps]) {
  codes[0] = step_codes<kBits, 0, Bytes>(chunk, offset);
  codes[1] = step_codes<kBits, 1, Bytes>(chunk, offset);
  codes[2] = step_codes<kBits, 2, Bytes>(chunk, offset);
  codes[3] = step_codes<kBits, 3, Bytes>(chunk, offset);
  codes[4] = step_codes<kBits, 4, Bytes>(chunk, offset);
  codes[5] = step_codes<kBits, 5, Bytes>(chunk, offset);
  codes[6] = step_codes<kBits, 6, Bytes>(chunk, offset);
  codes[7] = step_codes<kBits, 7, Bytes>(chunk, offset);
}

// ---- results

inline void store_block(
    const MatmulPart& p, int64_t block, int64_t row, const float (&acc)[kBlockRows]) {
  float* y = p.y + row * p.ldy + block * kBlockRows;
  const int width = p.w->block_rows(block);
  if (p.store == Store::add) {
    for (int r = 0; r < width; ++r) {
      y[r] += acc[r];
    }
  } else {
    __builtin_memcpy(y, acc, static_cast<size_t>(width) * sizeof(float));
  }
}

// ---- quantized weights

// kRows activation rows from `row` times one block.
template <typename Isa, int kBits, int kGroup, int kRows>
void multiply_int8_block(const MatmulPart& p, int64_t block, int64_t row) {
  using Float = typename Vector<Isa::kLanes>::Float;
  using Int = typename Vector<Isa::kLanes>::Int;
  constexpr int kGroups = kGroup == 16 ? 2 : 1;
  const PackedMatrix::Layout& w = *p.w;
  const std::byte* data = w.block(block);
  const std::byte* next = p.after(block, 1);
  const Int8Rows x = int8_rows(*p.x);
  const int64_t chunks = w.chunks();
  const Ahead ahead(w);
  alignas(64) float acc[kRows][kBlockRows] = {};
  ScaleWindow window;
  for (int64_t first = 0; first < chunks; first += kWindow) {
    const int count = chunks - first < kWindow ? static_cast<int>(chunks - first) : kWindow;
    expand_window(w, data, first, count, kBits == 8 ? 128 : 0, window);
    for (int c = 0; c < count; ++c) {
      const std::byte* chunk = data + (first + c) * (kBits * kVector);
      ahead.ask<kBits>(data, next, first + c);
      const int64_t at = (first + c) * x.m + row;
      alignas(64) int32_t dots[kGroups][kRows][kBlockRows];
      Isa::template dot_chunk<kBits, kGroup, kRows>(chunk, x.q + at * kChunk, dots);
      for (int g = 0; g < kGroups; ++g) {
        const float* sum = kGroups == 1 ? x.sum + at : x.half_sum + at + (first + c + g) * x.m;
        const float* scale = window.scale + (c * kGroups + g) * kBlockRows;
        const float* bias = window.bias + (c * kGroups + g) * kBlockRows;
        for (int i = 0; i < kRows; ++i) {
          for (int r = 0; r < kBlockRows; r += Isa::kLanes) {
            const Float dot = __builtin_convertvector(load<Int>(dots[g][i] + r), Float);
            Float sums = load<Float>(acc[i] + r);
            sums += dot * x.scale[at + i] * load<Float>(scale + r);
            sums += load<Float>(bias + r) * sum[i];
            store(acc[i] + r, sums);
          }
        }
      }
    }
  }
  for (int i = 0; i < kRows; ++i) {
    store_block(p, block, row + i, acc[i]);
  }
}

template <typename Isa, int kBits, int kGroup>
void multiply_int8_part(const MatmulPart& p) {
  for (int64_t block = p.first_block; block < p.last_block; ++block) {
    int64_t row = p.first_row;
    for (; row + 4 <= p.last_row; row += 4) {
      multiply_int8_block<Isa, kBits, kGroup, 4>(p, block, row);
    }
    for (; row < p.last_row; ++row) {
      multiply_int8_block<Isa, kBits, kGroup, 1>(p, block, row);
    }
  }
}

template <typename Isa>
void multiply_int8(const MatmulPart& p) {
  const bool small = p.w->format.group == 16;
  switch (p.w->format.bits) {
    case 2:
      return small ? multiply_int8_part<Isa, 2, 16>(p) : multiply_int8_part<Isa, 2, 32>(p);
    case 3:
      return small ? multiply_int8_part<Isa, 3, 16>(p) : multiply_int8_part<Isa, 3, 32>(p);
    case 4:
      return multiply_int8_part<Isa, 4, 32>(p);
    case 5:
      return multiply_int8_part<Isa, 5, 32>(p);
    case 6:
      return small ? multiply_int8_part<Isa, 6, 16>(p) : multiply_int8_part<Isa, 6, 32>(p);
    default:
      return multiply_int8_part<Isa, 8, 32>(p);
  }
}

// ---- dense weights

// Rows r .. of column k of a block.
template <PackedKind kKind, int kLanes>
inline typename Vector<kLanes>::Float dense_column(const std::byte* block, int64_t k, int r) {
  using V = Vector<kLanes>;
  if constexpr (kKind == PackedKind::f32) {
    return load<typename V::Float>(block + (k * kBlockRows + r) * 4);
  } else if constexpr (kKind == PackedKind::f16) {
    return __builtin_convertvector(
        load<typename V::Half>(block + (k * kBlockRows + r) * 2), typename V::Float);
  } else {
    const auto pair = load<typename V::Bits>(block + (k / 2 * kBlockRows + r) * 4);
    const auto bits = k % 2 == 0 ? pair << 16 : pair & 0xffff0000u;
    return __builtin_bit_cast(typename V::Float, bits);
  }
}

template <typename Isa, PackedKind kKind, int kRows>
void multiply_dense_block(const MatmulPart& p, int64_t block, int64_t row) {
  using Float = typename Vector<Isa::kLanes>::Float;
  constexpr int kVectors = kBlockRows / Isa::kLanes;
  const PackedMatrix::Layout& w = *p.w;
  const std::byte* data = w.block(block);
  const int64_t stride = f32_stride(w.columns);
  const float* x = reinterpret_cast<const float*>(p.x->data) + row * stride;
  Float acc[kRows][kVectors] = {};
  const auto column = [&](int64_t k) {
    for (int v = 0; v < kVectors; ++v) {
      const Float weight = dense_column<kKind, Isa::kLanes>(data, k, v * Isa::kLanes);
      for (int i = 0; i < kRows; ++i) {
        acc[i][v] += weight * x[i * stride + k];
      }
    }
  };
  int64_t k = 0;
  for (; k + 1 < w.columns; k += 2) {
    column(k);
    column(k + 1);
  }
  if (k < w.columns) {
    column(k);
  }
  for (int i = 0; i < kRows; ++i) {
    alignas(64) float sums[kBlockRows];
    for (int v = 0; v < kVectors; ++v) {
      store(sums + v * Isa::kLanes, acc[i][v]);
    }
    store_block(p, block, row + i, sums);
  }
}

template <typename Isa, PackedKind kKind>
void multiply_dense_part(const MatmulPart& p) {
  for (int64_t block = p.first_block; block < p.last_block; ++block) {
    int64_t row = p.first_row;
    for (; row + 4 <= p.last_row; row += 4) {
      multiply_dense_block<Isa, kKind, 4>(p, block, row);
    }
    for (; row < p.last_row; ++row) {
      multiply_dense_block<Isa, kKind, 1>(p, block, row);
    }
  }
}

template <typename Isa>
void multiply(const MatmulPart& p) {
  switch (p.w->format.kind) {
    case PackedKind::f32:
      return multiply_dense_part<Isa, PackedKind::f32>(p);
    case PackedKind::f16:
      return multiply_dense_part<Isa, PackedKind::f16>(p);
    case PackedKind::bf16:
      return multiply_dense_part<Isa, PackedKind::bf16>(p);
    default:
      return multiply_int8<Isa>(p);
  }
}

// ---- activations

inline RowKind row_kind_int8(const PackedMatrix::Layout& w, int64_t) {
  return w.quantized() ? RowKind::int8 : RowKind::f32;
}

// See Int8Rows. Magnitudes are compared as integers, in whose order infinity and NaN come last.
inline void quantize(const float* x, const Int8Rows& out, int64_t chunk, int64_t row) {
  const int64_t at = chunk * out.m + row;
  int8_t* q = out.q + at * kChunk;
  float* half_sum = out.half_sum + 2 * chunk * out.m + row;
  uint32_t largest = 0;
  for (int i = 0; i < kChunk; ++i) {
    const uint32_t magnitude = __builtin_bit_cast(uint32_t, x[i]) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  const float top = __builtin_bit_cast(float, largest);
  const float inverse = 127.0f / top;
  const bool finite = largest < 0x7f800000u;
  if (!finite || !(inverse < __builtin_inff())) {  // or zero, or too small to be divided by
    __builtin_memset(q, 0, kChunk);
    const float value = finite ? 0.0f : __builtin_nanf("");
    out.scale[at] = out.sum[at] = half_sum[0] = half_sum[out.m] = value;
    return;
  }
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer below
  int sums[2] = {};
  for (int half = 0; half < 2; ++half) {
    for (int i = half * 16; i < half * 16 + 16; ++i) {
      const float moved = x[i] * inverse + kRound;
      const int code = static_cast<int>(__builtin_bit_cast(uint32_t, moved) & 0x7fffff) - 0x400000;
      q[i] = static_cast<int8_t>(code);
      sums[half] += code;
    }
  }
  const float scale = top / 127.0f;
  out.scale[at] = scale;
  out.sum[at] = scale * static_cast<float>(sums[0] + sums[1]);
  half_sum[0] = scale * static_cast<float>(sums[0]);
  half_sum[out.m] = scale * static_cast<float>(sums[1]);
}

inline void prepare_int8(
    const Rows& rows, const float* x, int64_t ldx, int64_t first, int64_t last) {
  if (rows.kind != RowKind::int8) {
    return prepare_scalar(rows, x, ldx, first, last);
  }
  const Int8Rows out = int8_rows(rows);
  for (int64_t row = first; row < last; ++row) {
    for (int64_t chunk = 0; chunk < rows.k / kChunk; ++chunk) {
      quantize(x + row * ldx + chunk * kChunk, out, chunk, row);
    }
  }
}

}  // namespace
}  // namespace quince::kernels
