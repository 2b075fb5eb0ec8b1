// Dense weights times f32 activations: one fused multiply-add for each column of 16 rows, with the
// activation broadcast from memory. 16-bit weights are widened on the way.
#include "kernels/matmul_avx512.h"
#include "kernels/matmul_unpack_avx512.h"

namespace quince::kernels {

namespace {

struct TwoColumns {
  __m512 even;
  __m512 odd;
};

// Columns 2 * pair and 2 * pair + 1 of a block, as f32.
template <PackedKind kKind>
inline TwoColumns load_pair(const std::byte* block, int64_t pair) {
  if constexpr (kKind == PackedKind::f32) {
    const std::byte* at = block + pair * 2 * kVector;
    return {_mm512_load_ps(at), _mm512_load_ps(at + kVector)};
  } else if constexpr (kKind == PackedKind::f16) {
    const std::byte* at = block + pair * kVector;
    return {halves_at(at), halves_at(at + kVector / 2)};
  } else {
    const __m512i both = load512(block + pair * kVector);
    const __m512i upper = _mm512_set1_epi32(static_cast<int32_t>(0xffff0000u));
    return {
        _mm512_castsi512_ps(_mm512_slli_epi32(both, 16)),
        _mm512_castsi512_ps(_mm512_and_si512(both, upper))};
  }
}

// kRows activation rows from `row` times one block. Even and odd columns add up apart, so that two
// chains of additions run at once.
template <PackedKind kKind, int kRows>
void multiply_block(const MatmulPart& p, int64_t block, int64_t row) {
  const PackedMatrix::Layout& w = *p.w;
  const std::byte* data = w.block(block);
  const int64_t stride = f32_stride(w.columns);
  const float* x = reinterpret_cast<const float*>(p.x->data) + row * stride;
  __m512 even[kRows];
  __m512 odd[kRows];
  for (int i = 0; i < kRows; ++i) {
    even[i] = odd[i] = _mm512_setzero_ps();
  }
  constexpr int64_t kPairBytes = kKind == PackedKind::f32 ? 2 * kVector : kVector;
  constexpr int64_t kAhead = 2048;  // bytes
  const int64_t pairs = w.columns / 2;
  for (int64_t pair = 0; pair < pairs; ++pair) {
    const TwoColumns columns = load_pair<kKind>(data, pair);
    _mm_prefetch(reinterpret_cast<const char*>(data + pair * kPairBytes + kAhead), _MM_HINT_T0);
    if constexpr (kPairBytes > kVector) {
      _mm_prefetch(
          reinterpret_cast<const char*>(data + pair * kPairBytes + kAhead + kVector), _MM_HINT_T0);
    }
    for (int i = 0; i < kRows; ++i) {
      const float* at = x + i * stride + 2 * pair;
      even[i] = _mm512_fmadd_ps(columns.even, _mm512_set1_ps(at[0]), even[i]);
      odd[i] = _mm512_fmadd_ps(columns.odd, _mm512_set1_ps(at[1]), odd[i]);
    }
  }
  if (w.columns % 2 != 0) {
    __m512 last;
    if constexpr (kKind == PackedKind::f32) {
      last = _mm512_load_ps(data + pairs * 2 * kVector);
    } else {
      last = load_pair<kKind>(data, pairs).even;
    }
    for (int i = 0; i < kRows; ++i) {
      even[i] = _mm512_fmadd_ps(last, _mm512_set1_ps(x[i * stride + 2 * pairs]), even[i]);
    }
  }
  const int width = w.block_rows(block);
  for (int i = 0; i < kRows; ++i) {
    store_row(
        p.y + (row + i) * p.ldy + block * kBlockRows,
        _mm512_add_ps(even[i], odd[i]),
        width,
        p.store);
  }
}

template <PackedKind kKind>
void multiply_part(const MatmulPart& p) {
  for (int64_t block = p.first_block; block < p.last_block; ++block) {
    int64_t row = p.first_row;
    for (; row + 8 <= p.last_row; row += 8) {
      multiply_block<kKind, 8>(p, block, row);
    }
    if (row + 4 <= p.last_row) {
      multiply_block<kKind, 4>(p, block, row);
      row += 4;
    }
    if (row + 2 <= p.last_row) {
      multiply_block<kKind, 2>(p, block, row);
      row += 2;
    }
    if (row < p.last_row) {
      multiply_block<kKind, 1>(p, block, row);
    }
  }
}

}  // namespace

void multiply_f32_avx512(const MatmulPart& p) {
  switch (p.w->format.kind) {
    case PackedKind::f32:
      return multiply_part<PackedKind::f32>(p);
    case PackedKind::f16:
      return multiply_part<PackedKind::f16>(p);
    default:
      return multiply_part<PackedKind::bf16>(p);
  }
}

}  // namespace quince::kernels
