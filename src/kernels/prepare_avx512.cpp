// The avx512 table, and preparation of activations.
#include "kernels/matmul_avx512.h"
#include "kernels/matmul_unpack_avx512.h"

namespace quince::kernels {

namespace {

RowKind row_kind_avx512(const PackedMatrix::Layout& w, int64_t) {
  return w.quantized() ? RowKind::int8 : RowKind::f32;
}

void multiply_avx512(const MatmulPart& part) {
  if (part.w->quantized()) {
    multiply_int8_avx512(part);
  } else {
    multiply_f32_avx512(part);
  }
}

// See Int8Rows. Magnitudes are compared as integers, in whose order infinity and NaN come last.
void quantize(const float* x, const Int8Rows& out, int64_t chunk, int64_t row) {
  const int64_t at = chunk * out.m + row;
  int8_t* q = out.q + at * kChunk;
  float* half_sum = out.half_sum + 2 * chunk * out.m + row;
  const __m512 a = _mm512_loadu_ps(x);
  const __m512 b = _mm512_loadu_ps(x + 16);
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  const uint32_t largest = _mm512_reduce_max_epu32(_mm512_max_epu32(
      _mm512_and_si512(_mm512_castps_si512(a), magnitude),
      _mm512_and_si512(_mm512_castps_si512(b), magnitude)));
  float top;
  __builtin_memcpy(&top, &largest, 4);
  const float inverse = 127.0f / top;
  const bool finite = largest < 0x7f800000u;
  if (!finite || !(inverse < __builtin_inff())) {  // or zero, or too small to be divided by
    const float value = finite ? 0.0f : __builtin_nanf("");
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), _mm256_setzero_si256());
    out.scale[at] = out.sum[at] = half_sum[0] = half_sum[out.m] = value;
    return;
  }
  const __m512i qa = _mm512_cvtps_epi32(_mm512_mul_ps(a, _mm512_set1_ps(inverse)));
  const __m512i qb = _mm512_cvtps_epi32(_mm512_mul_ps(b, _mm512_set1_ps(inverse)));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q), _mm512_cvtepi32_epi8(qa));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16), _mm512_cvtepi32_epi8(qb));
  const int sum_a = _mm512_reduce_add_epi32(qa);
  const int sum_b = _mm512_reduce_add_epi32(qb);
  const float scale = top / 127.0f;
  out.scale[at] = scale;
  out.sum[at] = scale * static_cast<float>(sum_a + sum_b);
  half_sum[0] = scale * static_cast<float>(sum_a);
  half_sum[out.m] = scale * static_cast<float>(sum_b);
}

}  // namespace

void prepare_avx512(const Rows& rows, const float* x, int64_t ldx, int64_t first, int64_t last) {
  if (rows.kind != RowKind::int8) {
    return prepare_scalar(rows, x, ldx, first, last);
  }
  const int64_t chunks = rows.k / kChunk;
  const Int8Rows out = int8_rows(rows);
  for (int64_t row = first; row < last; ++row) {
    const float* in = x + row * ldx;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      quantize(in + chunk * kChunk, out, chunk, row);
    }
  }
}

const MatmulKernels kAvx512Matmul{
    CpuPath::avx512, row_kind_avx512, prepare_avx512, multiply_avx512};

}  // namespace quince::kernels
