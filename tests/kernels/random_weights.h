// Random tensors of every type, valid to the last bit of their scales, for the tests of packing and
// matmul. Deterministic: the same seed gives the same bytes on every machine.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/packed.h"
#include "weights/tensor.h"

namespace quince::test {

// SplitMix64 (Steele, Lea, Flood 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // Uniform in [low, high).
  float uniform(float low, float high) {
    return low + (high - low) * static_cast<float>(next() >> 40) * 0x1p-24f;
  }
  // Roughly normal: sum of 12 uniforms, variance 1.
  float normal() {
    float sum = -6.0f;
    for (int i = 0; i < 12; ++i) {
      sum += uniform(0.0f, 1.0f);
    }
    return sum;
  }

 private:
  uint64_t state_;
};

// f32 to binary16 for magnitudes of normal halves; truncates.
inline uint16_t to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t exponent = ((bits >> 23) & 255) - 127 + 15;
  return static_cast<uint16_t>(((bits >> 16) & 0x8000) | (exponent << 10) | ((bits >> 13) & 0x3ff));
}
inline uint16_t to_bf16(float value) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
}

// Offsets of the binary16 scales in a block of the type.
inline std::vector<int> half_offsets(TensorType type) {
  switch (type) {
    case TensorType::q4_1:
    case TensorType::q5_1:
    case TensorType::q4_k:
    case TensorType::q5_k:
      return {0, 2};
    case TensorType::q2_k:
      return {80, 82};
    case TensorType::q3_k:
      return {108};
    case TensorType::q6_k:
      return {208};
    case TensorType::tq1_0:
      return {52};
    case TensorType::tq2_0:
      return {64};
    default:
      return {0};
  }
}

inline TensorView random_tensor(
    const std::string& name, TensorType type, int64_t rows, int64_t columns, Random& random) {
  std::vector<std::byte> bytes(*tensor_bytes(type, std::vector<int64_t>{rows, columns}));
  const auto put = [&](size_t at, auto value) { std::memcpy(&bytes[at], &value, sizeof(value)); };
  if (type == TensorType::f32) {
    for (size_t i = 0; i < bytes.size(); i += 4) {
      put(i, random.normal());
    }
  } else if (type == TensorType::f16 || type == TensorType::bf16) {
    for (size_t i = 0; i < bytes.size(); i += 2) {
      const float sign = random.next() & 1 ? -1.0f : 1.0f;
      const float value = sign * random.uniform(0.001f, 2.0f);
      put(i, type == TensorType::f16 ? to_half(value) : to_bf16(value));
    }
  } else if (type == TensorType::f64) {
    for (size_t i = 0; i < bytes.size(); i += 8) {
      put(i, static_cast<double>(random.normal()));
    }
  } else {
    for (std::byte& b : bytes) {
      b = static_cast<std::byte>(random.next());
    }
    const auto size = static_cast<size_t>(info(type).bytes);
    if (type == TensorType::f8_e4m3) {
      for (std::byte& b : bytes) {
        b &= std::byte{0xbf};  // no NaN
      }
    } else if (type == TensorType::mxfp4) {
      for (size_t i = 0; i < bytes.size(); i += size) {
        bytes[i] = static_cast<std::byte>(118 + random.next() % 12);
      }
    } else if (info(type).block > 1) {
      for (size_t i = 0; i < bytes.size(); i += size) {
        for (const int offset : half_offsets(type)) {
          const float sign = random.next() & 1 ? -1.0f : 1.0f;
          put(i + static_cast<size_t>(offset), to_half(sign * random.uniform(0.001f, 0.02f)));
        }
      }
    }
  }
  return make_tensor(name, type, {rows, columns}, std::move(bytes));
}

inline kernels::PackSource source_of(TensorView tensor) {
  kernels::PackSource source;
  source.weight = std::move(tensor);
  return source;
}

// MLX's affine triple with random codes; scale_type f16, bf16 or f32.
inline kernels::PackSource random_triple(
    int bits, int group, TensorType scale_type, int64_t rows, int64_t columns, Random& random) {
  kernels::PackSource source;
  source.bits = bits;
  source.group = group;
  source.weight = random_tensor("w.weight", TensorType::u32, rows, columns * bits / 32, random);
  source.scales = random_tensor("w.scales", scale_type, rows, columns / group, random);
  source.biases = random_tensor("w.biases", scale_type, rows, columns / group, random);
  return source;
}

// The definition: code i of a row lies at bit i * bits; w = scale * code + bias.
inline std::vector<float> triple_row(const kernels::PackSource& source, int64_t row) {
  const auto bytes = source.weight.row(row);
  const int64_t columns = source.weight.columns() * 32 / source.bits;
  std::vector<float> scales(static_cast<size_t>(columns / source.group));
  std::vector<float> biases(scales.size());
  decode_rows(*source.scales, row, 1, scales.data());
  decode_rows(*source.biases, row, 1, biases.data());
  std::vector<float> out(static_cast<size_t>(columns));
  for (int64_t i = 0; i < columns; ++i) {
    int code = 0;
    for (int b = 0; b < source.bits; ++b) {
      const int64_t bit = i * source.bits + b;
      code |= ((static_cast<int>(bytes[static_cast<size_t>(bit / 8)]) >> (bit % 8)) & 1) << b;
    }
    const auto g = static_cast<size_t>(i / source.group);
    const float product = scales[g] * static_cast<float>(code);
    out[static_cast<size_t>(i)] = product + biases[g];
  }
  return out;
}

}  // namespace quince::test
