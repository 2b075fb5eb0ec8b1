// AVX2: 8 output rows a register. vpmaddubsw multiplies unsigned codes by signed activations and
// adds neighbours in 16 bits; sums stay in 16 bits as long as they cannot overflow.
#include <immintrin.h>

#include "kernels/matmul_impl.h"

namespace quince::kernels {

namespace {

struct Avx2 {
  static constexpr int kLanes = 8;
  using Bytes = Vector<kLanes>::Bytes;

  static __m256i broadcast4(const int8_t* at) {
    int32_t four;
    __builtin_memcpy(&four, at, 4);
    return _mm256_set1_epi32(four);
  }

  // Steps whose products fit 16 bits: each adds at most 2 * 127 * (2^bits - 1).
  template <int kBits>
  static constexpr int kSafeSteps = kBits <= 4 ? 8 : (kBits == 5 ? 4 : (kBits == 6 ? 2 : 1));
  static_assert(8 * 254 * 15 <= 32767 && 4 * 254 * 31 <= 32767 && 2 * 254 * 63 <= 32767);

  template <int kBits, int kFirst, int kCount>
  static __m256i dot(const Bytes (&codes)[kSteps], const int8_t* q) {
    constexpr int kRun = kSafeSteps<kBits> < kCount ? kSafeSteps<kBits> : kCount;
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i total = _mm256_setzero_si256();
    for (int first = kFirst; first < kFirst + kCount; first += kRun) {
      __m256i sum = _mm256_setzero_si256();
      for (int s = first; s < first + kRun; ++s) {
        const __m256i code = __builtin_bit_cast(__m256i, codes[s]);
        const __m256i x = broadcast4(q + 4 * s);
        if constexpr (kBits == 8) {
          // |code - 128| <= 128 times an activation that takes its sign: 2 * 128 * 127 fits.
          sum = _mm256_maddubs_epi16(_mm256_abs_epi8(code), _mm256_sign_epi8(x, code));
        } else {
          sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(code, x));
        }
      }
      total = _mm256_add_epi32(total, _mm256_madd_epi16(sum, ones));
    }
    return total;
  }

  template <int kBits, int kGroup, int kRows>
  static void dot_chunk(
      const std::byte* chunk,
      const int8_t* q,
      int32_t (&dots)[kGroup == 16 ? 2 : 1][kRows][kBlockRows]) {
    for (int r = 0; r < kBlockRows; r += kLanes) {
      Bytes codes[kSteps];
      all_codes<kBits>(chunk, 4 * r, codes);
      if constexpr (kBits == 8) {
        for (Bytes& code : codes) {
          code ^= 0x80;
        }
      }
      for (int i = 0; i < kRows; ++i) {
        const auto put = [&](int g, __m256i sum) {
          _mm256_store_si256(reinterpret_cast<__m256i*>(dots[g][i] + r), sum);
        };
        if constexpr (kGroup == 16) {
          put(0, dot<kBits, 0, 4>(codes, q + i * kChunk));
          put(1, dot<kBits, 4, 4>(codes, q + i * kChunk));
        } else {
          put(0, dot<kBits, 0, 8>(codes, q + i * kChunk));
        }
      }
    }
  }
};

}  // namespace

const MatmulKernels kAvx2Matmul{CpuPath::avx2, row_kind_int8, prepare_int8, multiply<Avx2>};

}  // namespace quince::kernels
