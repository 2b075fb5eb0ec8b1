// Quantized weights times 8-bit activations. 16 output rows live in the 16 lanes of a register: a
// dot product step (4 columns) is one vpdpbusd of a code vector with 4 activations broadcast from
// memory. Codes are unpacked once for up to 8 activation rows.
#include "kernels/matmul_avx512.h"
#include "kernels/matmul_unpack_avx512.h"

namespace quince::kernels {

namespace {

inline __m512i broadcast4(const int8_t* at) {
  int32_t four;
  __builtin_memcpy(&four, at, 4);
  return _mm512_set1_epi32(four);
}

// Sums of codes * q over steps [kFirst, kFirst + kCount), exact.
template <int kFirst, int kCount>
inline __m512i dot(const __m512i (&codes)[kSteps], const int8_t* q) {
  __m512i sum = _mm512_setzero_si512();
  for (int s = kFirst; s < kFirst + kCount; ++s) {
    sum = _mm512_dpbusd_epi32(sum, codes[s], broadcast4(q + 4 * s));
  }
  return sum;
}

// acc += (dot * x.scale) * scale + bias * sum
inline __m512 add_group(
    __m512 acc, __m512i dot, float x_scale, const float* scale, const float* bias, float sum) {
  const __m512 product = _mm512_mul_ps(_mm512_cvtepi32_ps(dot), _mm512_set1_ps(x_scale));
  acc = _mm512_fmadd_ps(product, _mm512_load_ps(scale), acc);
  return _mm512_fmadd_ps(_mm512_load_ps(bias), _mm512_set1_ps(sum), acc);
}

// kRows activation rows from `row` times one block.
template <int kBits, int kGroup, int kRows>
void multiply_block(const MatmulPart& p, int64_t block, int64_t row) {
  const PackedMatrix::Layout& w = *p.w;
  const std::byte* data = w.block(block);
  const std::byte* next = p.after(block, 1);
  const int64_t chunks = w.chunks();
  const Ahead ahead(w);
  const Int8Rows x = int8_rows(*p.x);
  __m512 acc[kRows];
  for (int i = 0; i < kRows; ++i) {
    acc[i] = _mm512_setzero_ps();
  }
  ScaleWindow window;
  for (int64_t first = 0; first < chunks; first += kWindow) {
    const int count = chunks - first < kWindow ? static_cast<int>(chunks - first) : kWindow;
    expand_window(w, data, first, count, window);
    for (int c = 0; c < count; ++c) {
      const std::byte* chunk = data + (first + c) * (kBits * kVector);
      ahead.ask<kBits>(data, next, first + c);
      __m512i codes[kSteps];
      load_codes<kBits>(chunk, codes);
      const int64_t at = (first + c) * x.m + row;
      const int8_t* q = x.q + at * kChunk;
      for (int i = 0; i < kRows; ++i, q += kChunk) {
        if constexpr (kGroup == 16) {
          const float* scale = window.scale + c * 2 * kBlockRows;
          const float* bias = window.bias + c * 2 * kBlockRows;
          const float* sum = x.half_sum + at + (first + c) * x.m + i;
          acc[i] = add_group(acc[i], dot<0, 4>(codes, q), x.scale[at + i], scale, bias, sum[0]);
          acc[i] = add_group(
              acc[i],
              dot<4, 4>(codes, q),
              x.scale[at + i],
              scale + kBlockRows,
              bias + kBlockRows,
              sum[x.m]);
        } else {
          acc[i] = add_group(
              acc[i],
              dot<0, 8>(codes, q),
              x.scale[at + i],
              window.scale + c * kBlockRows,
              window.bias + c * kBlockRows,
              x.sum[at + i]);
        }
      }
    }
  }
  const int width = w.block_rows(block);
  for (int i = 0; i < kRows; ++i) {
    store_row(p.y + (row + i) * p.ldy + block * kBlockRows, acc[i], width, p.store);
  }
}

template <int kBits, int kGroup>
void multiply_part(const MatmulPart& p) {
  for (int64_t block = p.first_block; block < p.last_block; ++block) {
    int64_t row = p.first_row;
    for (; row + 8 <= p.last_row; row += 8) {
      multiply_block<kBits, kGroup, 8>(p, block, row);
    }
    if (row + 4 <= p.last_row) {
      multiply_block<kBits, kGroup, 4>(p, block, row);
      row += 4;
    }
    if (row + 2 <= p.last_row) {
      multiply_block<kBits, kGroup, 2>(p, block, row);
      row += 2;
    }
    if (row < p.last_row) {
      multiply_block<kBits, kGroup, 1>(p, block, row);
    }
  }
}

}  // namespace

void multiply_int8_avx512(const MatmulPart& p) {
  const bool small_groups = p.w->format.group == 16;
  switch (p.w->format.bits) {
    case 2:
      return small_groups ? multiply_part<2, 16>(p) : multiply_part<2, 32>(p);
    case 3:
      return small_groups ? multiply_part<3, 16>(p) : multiply_part<3, 32>(p);
    case 4:
      return multiply_part<4, 32>(p);
    case 5:
      return multiply_part<5, 32>(p);
    case 6:
      return small_groups ? multiply_part<6, 16>(p) : multiply_part<6, 32>(p);
    default:
      return multiply_part<8, 32>(p);
  }
}

}  // namespace quince::kernels
