// What becomes of a row of sums of a gate and of its up: activation(gate) * up as bf16, where the
// next matmul reads it. Internal linkage, see matmul_unpack_avx512.h.
#pragma once

#include "kernels/elementwise_gates.h"
#include "kernels/matmul_tiles_amx.h"

namespace quince::kernels {
namespace {

// Floats from a row's sums of one block to those of the other, as store_sums() leaves them.
constexpr int64_t kBlockSums = kTileRows * kBlockRows;

// The block of ups to a block of gates.
inline int64_t up_block(const PackedMatrix::Layout& w, int64_t block) {
  return w.rows / 2 / kBlockRows + block;
}

// Gate and up to half a tile row of prepared activations.
template <GateActivation kActivation>
class PutGated {
 public:
  PutGated(const GatedPart& part, int64_t block) {
    const int64_t inner = part.w->rows / 2;
    const int64_t column = block * kBlockRows;
    tiles_ = part.out->data + column / kTileColumns * static_cast<int64_t>(kTileBytes) +
             column % kTileColumns * 2;
    stripe_bytes_ = column_tiles(inner) * static_cast<int64_t>(kTileBytes);
    if (part.gate.bias) {
      gate_bias_ = part.gate.bias + column;
      up_bias_ = gate_bias_ + inner;
    }
  }

  // Where 16 results of a row go.
  std::byte* at(int64_t row) const {
    return tiles_ + row / kTileRows * stripe_bytes_ + row % kTileRows * kVector;
  }

  void operator()(const float* sums, int64_t row) const {
    F gate = _mm512_load_ps(sums);
    F up = _mm512_load_ps(sums + kBlockSums);
    if (gate_bias_) {
      gate = add(gate, load(gate_bias_));
      up = add(up, load(up_bias_));
    }
    if constexpr (kActivation == GateActivation::silu) {
      gate = silu(gate);
    } else if constexpr (kActivation == GateActivation::gelu_tanh) {
      gate = gelu_tanh(gate);
    } else {
      gate = gelu(gate);
    }
    const __m256bh rounded = _mm512_cvtneps_pbh(mul(gate, up));
    _mm256_store_si256(reinterpret_cast<__m256i*>(at(row)), __builtin_bit_cast(__m256i, rounded));
  }

 private:
  std::byte* tiles_;      // of row 0, at the block's columns
  int64_t stripe_bytes_;  // from 16 rows to the next
  const float* gate_bias_ = nullptr;
  const float* up_bias_ = nullptr;  // both null without
};

}  // namespace
}  // namespace quince::kernels
