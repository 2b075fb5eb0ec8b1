// NEON with dot products (ARMv8.2): 4 output rows a register, activations taken by lane.
#include <arm_neon.h>

#include "kernels/matmul_impl.h"

namespace quince::kernels {

namespace {

struct Neon {
  static constexpr int kLanes = 4;
  using Bytes = Vector<kLanes>::Bytes;

  // sum += codes of steps 4 * kQuarter .. + 3 times the 16 activations of x.
  template <int kBits, int kQuarter>
  static int32x4_t add_steps(int32x4_t sum, const std::byte* chunk, int offset, int8x16_t x) {
    const int8x16_t c0 = step<kBits, 4 * kQuarter>(chunk, offset);
    const int8x16_t c1 = step<kBits, 4 * kQuarter + 1>(chunk, offset);
    const int8x16_t c2 = step<kBits, 4 * kQuarter + 2>(chunk, offset);
    const int8x16_t c3 = step<kBits, 4 * kQuarter + 3>(chunk, offset);
    sum = vdotq_laneq_s32(sum, c0, x, 0);
    sum = vdotq_laneq_s32(sum, c1, x, 1);
    sum = vdotq_laneq_s32(sum, c2, x, 2);
    return vdotq_laneq_s32(sum, c3, x, 3);
  }

  template <int kBits, int kStep>
  static int8x16_t step(const std::byte* chunk, int offset) {
    Bytes codes = step_codes<kBits, kStep, Bytes>(chunk, offset);
    if constexpr (kBits == 8) {
      codes ^= 0x80;
    }
    return __builtin_bit_cast(int8x16_t, codes);
  }

  template <int kBits, int kGroup, int kRows>
  static void dot_chunk(
      const std::byte* chunk,
      const int8_t* q,
      int32_t (&dots)[kGroup == 16 ? 2 : 1][kRows][kBlockRows]) {
    int8x16_t x[kRows][2];
    for (int i = 0; i < kRows; ++i) {
      x[i][0] = vld1q_s8(q + i * kChunk);
      x[i][1] = vld1q_s8(q + i * kChunk + 16);
    }
    for (int r = 0; r < kBlockRows; r += kLanes) {
      for (int i = 0; i < kRows; ++i) {
        const int32x4_t first = add_steps<kBits, 0>(vdupq_n_s32(0), chunk, 4 * r, x[i][0]);
        if constexpr (kGroup == 16) {
          store(dots[0][i] + r, first);
          store(dots[1][i] + r, add_steps<kBits, 1>(vdupq_n_s32(0), chunk, 4 * r, x[i][1]));
        } else {
          store(dots[0][i] + r, add_steps<kBits, 1>(first, chunk, 4 * r, x[i][1]));
        }
      }
    }
  }
};

}  // namespace

const MatmulKernels kNeonMatmul{CpuPath::neon, row_kind_int8, prepare_int8, multiply<Neon>};

}  // namespace quince::kernels
