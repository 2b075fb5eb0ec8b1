// ARMv8.6 matrix multiply: smmla takes 2 outputs x 8 columns times 2 activation rows x 8 columns,
// twice the work of a dot product instruction. For 4 activation rows at once; single rows go as in
// matmul_neon.cpp.
#include <arm_neon.h>

#include "kernels/matmul_impl.h"

namespace quince::kernels {

namespace {

struct I8mm {
  static constexpr int kLanes = 4;
  using Bytes = Vector<kLanes>::Bytes;

  template <int kBits>
  static void signed_codes(const std::byte* chunk, int offset, int8x16_t (&out)[kSteps]) {
    Bytes codes[kSteps];
    all_codes<kBits>(chunk, offset, codes);
    for (int s = 0; s < kSteps; ++s) {
      out[s] = __builtin_bit_cast(int8x16_t, kBits == 8 ? codes[s] ^ 0x80 : codes[s]);
    }
  }

  // The codes of two steps: 2 outputs x 8 columns, outputs 0, 1 (zip1) or 2, 3 (zip2).
  static int8x16_t low_outputs(int8x16_t even, int8x16_t odd) {
    return vreinterpretq_s8_s32(vzip1q_s32(vreinterpretq_s32_s8(even), vreinterpretq_s32_s8(odd)));
  }
  static int8x16_t high_outputs(int8x16_t even, int8x16_t odd) {
    return vreinterpretq_s8_s32(vzip2q_s32(vreinterpretq_s32_s8(even), vreinterpretq_s32_s8(odd)));
  }

  // Two activation rows, 8 columns from q on.
  static int8x16_t two_rows(const int8_t* q) {
    return vcombine_s8(vld1_s8(q), vld1_s8(q + kChunk));
  }

  // Four outputs from r on, activation rows i and i + 1, steps [kFirst, kFirst + kCount).
  template <int kFirst, int kCount>
  static void dot_pair(
      const int8x16_t (&codes)[kSteps], const int8_t* q, int32_t* row0, int32_t* row1) {
    int32x4_t low = vdupq_n_s32(0);  // output 0 x rows, output 1 x rows
    int32x4_t high = vdupq_n_s32(0);
    for (int s = kFirst; s < kFirst + kCount; s += 2) {
      const int8x16_t x = two_rows(q + 4 * s);
      low = vmmlaq_s32(low, low_outputs(codes[s], codes[s + 1]), x);
      high = vmmlaq_s32(high, high_outputs(codes[s], codes[s + 1]), x);
    }
    vst1q_s32(row0, vuzp1q_s32(low, high));
    vst1q_s32(row1, vuzp2q_s32(low, high));
  }

  // One activation row, by lane.
  template <int kFirst, int kCount>
  static int32x4_t dot_single(const int8x16_t (&codes)[kSteps], const int8_t* q) {
    int32x4_t sum = vdupq_n_s32(0);
    for (int s = kFirst; s < kFirst + kCount; ++s) {
      int32_t four;
      __builtin_memcpy(&four, q + 4 * s, 4);
      sum = vdotq_s32(sum, codes[s], vreinterpretq_s8_s32(vdupq_n_s32(four)));
    }
    return sum;
  }

  template <int kBits, int kGroup, int kRows>
  static void dot_chunk(
      const std::byte* chunk,
      const int8_t* q,
      int32_t (&dots)[kGroup == 16 ? 2 : 1][kRows][kBlockRows]) {
    for (int r = 0; r < kBlockRows; r += kLanes) {
      int8x16_t codes[kSteps];
      signed_codes<kBits>(chunk, 4 * r, codes);
      if constexpr (kRows == 1) {
        if constexpr (kGroup == 16) {
          store(dots[0][0] + r, dot_single<0, 4>(codes, q));
          store(dots[1][0] + r, dot_single<4, 4>(codes, q));
        } else {
          store(dots[0][0] + r, dot_single<0, 8>(codes, q));
        }
      } else {
        for (int i = 0; i < kRows; i += 2) {
          const int8_t* rows = q + i * kChunk;
          if constexpr (kGroup == 16) {
            dot_pair<0, 4>(codes, rows, dots[0][i] + r, dots[0][i + 1] + r);
            dot_pair<4, 4>(codes, rows, dots[1][i] + r, dots[1][i + 1] + r);
          } else {
            dot_pair<0, 8>(codes, rows, dots[0][i] + r, dots[0][i + 1] + r);
          }
        }
      }
    }
  }
};

}  // namespace

const MatmulKernels kI8mmMatmul{CpuPath::i8mm, row_kind_int8, prepare_int8, multiply<I8mm>};

}  // namespace quince::kernels
