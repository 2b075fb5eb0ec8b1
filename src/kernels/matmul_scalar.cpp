// The portable kernels: reference of all others, and what runs where nothing better is known.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/matmul_kernels.h"
#include "kernels/pack_unpack.h"
#include "weights/float_formats.h"

namespace quince::kernels {

namespace {

constexpr int kRowsAtOnce = 8;  // activation rows per pass over a block

RowKind row_kind_scalar(const PackedMatrix::Layout& w, int64_t) {
  return w.quantized() ? RowKind::int8 : RowKind::f32;
}

// acc[row][16] to rows [row, row + count) of y.
void store_block(
    const MatmulPart& p, int64_t block, int64_t row, int count, const float (*acc)[kBlockRows]) {
  const int width = p.w->block_rows(block);
  for (int i = 0; i < count; ++i) {
    float* y = p.y + (row + i) * p.ldy + block * kBlockRows;
    for (int r = 0; r < width; ++r) {
      y[r] = p.store == Store::add ? y[r] + acc[i][r] : acc[i][r];
    }
  }
}

// dot[r] += codes of 4 columns of row r times q, for `steps` steps.
void dot_steps(const uint8_t* codes, const int8_t* q, int steps, int32_t* dot) {
  for (int s = 0; s < steps; ++s) {
    for (int r = 0; r < kBlockRows; ++r) {
      for (int c = 0; c < 4; ++c) {
        dot[r] += codes[s * kVector + 4 * r + c] * q[4 * s + c];
      }
    }
  }
}

void multiply_int8(const MatmulPart& p, int64_t block, int64_t row, int count) {
  const PackedMatrix::Layout& w = *p.w;
  const std::byte* data = w.block(block);
  const int halves = scales_per_chunk(w);
  const int steps = kSteps / halves;
  const Int8Rows x = int8_rows(*p.x);
  float acc[kRowsAtOnce][kBlockRows] = {};
  uint8_t codes[kSteps * kVector];
  float scale[2 * kBlockRows];
  float bias[2 * kBlockRows];
  for (int64_t chunk = 0; chunk < w.chunks(); ++chunk) {
    unpack_chunk(w.format.bits, data + static_cast<size_t>(chunk) * w.chunk_bytes(), codes);
    expand_scales(w, data, chunk, scale, bias);
    for (int i = 0; i < count; ++i) {
      const int64_t at = chunk * x.m + row + i;
      for (int half = 0; half < halves; ++half) {
        int32_t dot[kBlockRows] = {};
        dot_steps(
            codes + half * steps * kVector, x.q + at * kChunk + half * kChunk / 2, steps, dot);
        const float sum = halves == 1 ? x.sum[at] : x.half_sum[(2 * chunk + half) * x.m + row + i];
        for (int r = 0; r < kBlockRows; ++r) {
          acc[i][r] += static_cast<float>(dot[r]) * x.scale[at] * scale[half * kBlockRows + r] +
                       bias[half * kBlockRows + r] * sum;
        }
      }
    }
  }
  store_block(p, block, row, count, acc);
}

float dense_weight(const PackedMatrix::Layout& w, const std::byte* block, int64_t k, int r) {
  if (w.format.kind == PackedKind::f32) {
    float value;
    std::memcpy(&value, block + (k * kBlockRows + r) * 4, 4);
    return value;
  }
  const bool pairs = w.format.kind == PackedKind::bf16;
  const int64_t element = pairs ? k / 2 * 2 * kBlockRows + 2 * r + k % 2 : k * kBlockRows + r;
  uint16_t bits;
  std::memcpy(&bits, block + element * 2, 2);
  return pairs ? bf16_to_f32(bits) : f16_to_f32(bits);
}

void multiply_dense(const MatmulPart& p, int64_t block, int64_t row, int count) {
  const PackedMatrix::Layout& w = *p.w;
  const std::byte* data = w.block(block);
  const int64_t stride = f32_stride(w.columns);
  const auto* x = reinterpret_cast<const float*>(p.x->data);
  float acc[kRowsAtOnce][kBlockRows] = {};
  for (int64_t k = 0; k < w.columns; ++k) {
    float weight[kBlockRows];
    for (int r = 0; r < kBlockRows; ++r) {
      weight[r] = dense_weight(w, data, k, r);
    }
    for (int i = 0; i < count; ++i) {
      const float value = x[(row + i) * stride + k];
      for (int r = 0; r < kBlockRows; ++r) {
        acc[i][r] += value * weight[r];
      }
    }
  }
  store_block(p, block, row, count, acc);
}

void multiply_scalar(const MatmulPart& p) {
  for (int64_t block = p.first_block; block < p.last_block; ++block) {
    for (int64_t row = p.first_row; row < p.last_row; row += kRowsAtOnce) {
      const int count = static_cast<int>(std::min<int64_t>(kRowsAtOnce, p.last_row - row));
      if (p.w->quantized()) {
        multiply_int8(p, block, row, count);
      } else {
        multiply_dense(p, block, row, count);
      }
    }
  }
}

void quantize(const float* x, const Int8Rows& out, int64_t chunk, int64_t row) {
  const int64_t at = chunk * out.m + row;
  int8_t* q = out.q + at * kChunk;
  float* half_sum = out.half_sum + 2 * chunk * out.m + row;
  // As integers, magnitudes order like floats, infinity and NaN above all.
  uint32_t largest = 0;
  for (int i = 0; i < kChunk; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  }
  const float top = std::bit_cast<float>(largest);
  const float inverse = 127.0f / top;
  const bool finite = largest < 0x7f800000u;
  if (!finite || !(inverse < std::numeric_limits<float>::infinity())) {
    // Not finite; or all zero, or too small to be divided by.
    std::memset(q, 0, kChunk);
    const float value = finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
    out.scale[at] = out.sum[at] = half_sum[0] = half_sum[out.m] = value;
    return;
  }
  const float scale = top / 127.0f;
  int sums[2] = {};
  for (int i = 0; i < kChunk; ++i) {
    q[i] = static_cast<int8_t>(std::nearbyint(x[i] * inverse));
    sums[i / 16] += q[i];
  }
  out.scale[at] = scale;
  out.sum[at] = scale * static_cast<float>(sums[0] + sums[1]);
  half_sum[0] = scale * static_cast<float>(sums[0]);
  half_sum[out.m] = scale * static_cast<float>(sums[1]);
}

}  // namespace

void prepare_scalar(const Rows& rows, const float* x, int64_t ldx, int64_t first, int64_t last) {
  const int64_t k = rows.k;
  for (int64_t row = first; row < last; ++row) {
    const float* in = x + row * ldx;
    if (rows.kind == RowKind::int8) {
      const Int8Rows out = int8_rows(rows);
      for (int64_t chunk = 0; chunk < k / kChunk; ++chunk) {
        quantize(in + chunk * kChunk, out, chunk, row);
      }
    } else {
      float* out = reinterpret_cast<float*>(rows.data) + row * f32_stride(k);
      std::memcpy(out, in, static_cast<size_t>(k) * sizeof(float));
      std::memset(out + k, 0, static_cast<size_t>(f32_stride(k) - k) * sizeof(float));
    }
  }
}

const MatmulKernels kScalarMatmul{
    CpuPath::scalar, row_kind_scalar, prepare_scalar, multiply_scalar};

}  // namespace quince::kernels
