// How keys and values are stored in a block, on the vectors of elementwise_simd.h (see there on
// linkage): as 16- or 32-bit floats, or as codes of 8 or 4 bits with a bf16 scale for each group of
// kKvGroup dimensions of a position, x = code * scale.
//
// Coded rows are turned first, by a fixed orthogonal matrix: signs, then a Walsh-Hadamard
// transform. It spreads what stands out in a few dimensions over all of them, so that no group is
// coarse (Ashkboos et al. 2024, QuaRot). Queries are turned likewise, which leaves their products
// with the keys as they were, and sums of values are turned back.
#pragma once

#include "kernels/attention.h"
#include "kernels/elementwise_simd.h"

namespace quince::kernels {
namespace {

// Stored number formats as types, so that kernels are instantiated per format.
struct StoredF32 {
  using Bits = float;
  static F load_vector(const float* p) {
    return load(p);
  }
  static void store_vector(float* p, F x) {
    store(p, x);
  }
};
struct StoredF16 {
  using Bits = uint16_t;
  static F load_vector(const uint16_t* p) {
    return load_f16(p);
  }
  static void store_vector(uint16_t* p, F x) {
    store_f16(p, x);
  }
};
struct StoredBf16 {
  using Bits = uint16_t;
  static F load_vector(const uint16_t* p) {
    return load_bf16(p);
  }
  static void store_vector(uint16_t* p, F x) {
    store_bf16(p, x);
  }
};

// Keys of a block for reading: number (dimension d, positions c, c + 1, ...) is vector(d, c) times
// scale(d, c), which is the same for all d of a group. values likewise: vector(position,
// dimension).
template <typename T>
struct PlainKeys {
  static constexpr bool kScaled = false;
  const typename T::Bits* numbers;
  PlainKeys(const std::byte* stored, int)
      : numbers(reinterpret_cast<const typename T::Bits*>(stored)) {}
  F vector(int d, int c) const {
    return T::load_vector(numbers + static_cast<int64_t>(d) * kKvBlock + c);
  }
  F scale(int, int) const {
    return splat(1.0f);
  }
  const void* line(int d) const {
    return numbers + static_cast<int64_t>(d) * kKvBlock;
  }
  static constexpr int kLineBytes = kKvBlock * sizeof(typename T::Bits);
};

template <typename T>
struct PlainValues {
  static constexpr bool kScaled = false;
  const typename T::Bits* numbers;
  int width;
  PlainValues(const std::byte* stored, int value_width)
      : numbers(reinterpret_cast<const typename T::Bits*>(stored)), width(value_width) {}
  F vector(int p, int i) const {
    return T::load_vector(numbers + static_cast<int64_t>(p) * width + i);
  }
  float scale(int, int) const {
    return 1.0f;
  }
};

template <KvType kType>
struct CodedKeys {
  static constexpr bool kScaled = true;
  const uint8_t* codes;
  const uint16_t* scales;  // [group][position]
  CodedKeys(const std::byte* stored, int width)
      : codes(reinterpret_cast<const uint8_t*>(stored)),
        scales(reinterpret_cast<const uint16_t*>(stored + kv_code_bytes(kType, width) * kKvBlock)) {
  }
  F vector(int d, int c) const {
    if constexpr (kType == KvType::q8) {
      return load_i8(reinterpret_cast<const int8_t*>(codes) + d * kKvBlock + c);
    } else {
      return load_nibbles(codes + d / 2 * kKvBlock + c, d % 2 * 4);
    }
  }
  F scale(int d, int c) const {
    return load_bf16(scales + d / kKvGroup * kKvBlock + c);
  }
  const void* line(int d) const {
    return codes + (kType == KvType::q8 ? d : d / 2) * kKvBlock;
  }
  static constexpr int kLineBytes = kKvBlock;
};

template <KvType kType>
struct CodedValues {
  static constexpr bool kScaled = true;
  const uint8_t* codes;    // of a position: 4 bits: i and i + 16 of a group share a byte
  const uint16_t* scales;  // [position][group]
  int64_t row;
  int groups;
  CodedValues(const std::byte* stored, int width)
      : codes(reinterpret_cast<const uint8_t*>(stored)),
        scales(reinterpret_cast<const uint16_t*>(stored + kv_code_bytes(kType, width) * kKvBlock)),
        row(static_cast<int64_t>(kv_code_bytes(kType, width))),
        groups(kv_groups(width)) {}
  F vector(int p, int i) const {
    if constexpr (kType == KvType::q8) {
      return load_i8(reinterpret_cast<const int8_t*>(codes) + p * row + i);
    } else {
      return load_nibbles(codes + p * row + i / kKvGroup * 16 + i % 16, i % kKvGroup / 16 * 4);
    }
  }
  float scale(int p, int i) const {
    return bf16_bits_to_float(scales[p * groups + i / kKvGroup]);
  }
};

// Calls f with a type as its template argument's value: PlainKeys<...> and so on.
template <typename Body>
void with_keys(KvType type, const Body& body) {
  switch (type) {
    case KvType::f32:
      return body.template operator()<PlainKeys<StoredF32>>();
    case KvType::f16:
      return body.template operator()<PlainKeys<StoredF16>>();
    case KvType::bf16:
      return body.template operator()<PlainKeys<StoredBf16>>();
    case KvType::q8:
      return body.template operator()<CodedKeys<KvType::q8>>();
    case KvType::q4:
      return body.template operator()<CodedKeys<KvType::q4>>();
  }
}

template <typename Body>
void with_values(KvType type, const Body& body) {
  switch (type) {
    case KvType::f32:
      return body.template operator()<PlainValues<StoredF32>>();
    case KvType::f16:
      return body.template operator()<PlainValues<StoredF16>>();
    case KvType::bf16:
      return body.template operator()<PlainValues<StoredBf16>>();
    case KvType::q8:
      return body.template operator()<CodedValues<KvType::q8>>();
    case KvType::q4:
      return body.template operator()<CodedValues<KvType::q4>>();
  }
}

// The largest power of two that divides a head's width: so many dimensions are mixed.
inline int mixed_dims(int dim) {
  return dim & -dim;
}

inline void hadamard(float* x, int n) {
  if (n < kLanes) {
    for (int stride = 1; stride < n; stride *= 2) {
      for (int i = 0; i < n; ++i) {
        if ((i & stride) == 0) {
          const float a = x[i];
          const float b = x[i + stride];
          x[i] = a + b;
          x[i + stride] = a - b;
        }
      }
    }
    return;
  }
  for (int i = 0; i < n; i += kLanes) {
    store(x + i, hadamard_lanes(load(x + i)));
  }
  for (int stride = kLanes; stride < n; stride *= 2) {
    for (int base = 0; base < n; base += 2 * stride) {
      for (int i = base; i < base + stride; i += kLanes) {
        const F a = load(x + i);
        const F b = load(x + i + stride);
        store(x + i, add(a, b));
        store(x + i + stride, sub(a, b));
      }
    }
  }
}

// +1 or -1, as a fixed row of bits says: a mean that all dimensions share must not end up in one.
constexpr float turn_sign(int i) {
  return (0x9e3779b97f4a7c15u * (static_cast<uint64_t>(i) + 1)) >> 63 ? -1.0f : 1.0f;
}

// Made by the compiler: code of this instruction set must not run when the program starts.
struct TurnSigns {
  alignas(64) float signs[kLongestCodedHead] = {};
  constexpr TurnSigns() {
    for (int i = 0; i < kLongestCodedHead; ++i) {
      signs[i] = turn_sign(i);
    }
  }
};
constexpr TurnSigns kTurnSigns;

// In place; x is the turned row's place, dim numbers.
inline void turn_row(float* x, int dim) {
  const int mixed = mixed_dims(dim);
  const float norm = 1.0f / __builtin_sqrtf(static_cast<float>(mixed));
  for (int i = 0; i < dim; ++i) {
    x[i] *= kTurnSigns.signs[i] * norm;
  }
  for (int i = 0; i < dim; i += mixed) {
    hadamard(x + i, mixed);
  }
}

inline void turn_row_back(float* x, int dim) {
  const int mixed = mixed_dims(dim);
  const float norm = 1.0f / __builtin_sqrtf(static_cast<float>(mixed));
  for (int i = 0; i < dim; i += mixed) {
    hadamard(x + i, mixed);
  }
  for (int i = 0; i < dim; ++i) {
    x[i] *= kTurnSigns.signs[i] * norm;
  }
}

// Codes of one group: signed 8 bits about 0, or 4 bits with 8 for 0, of which the furthest number
// gets the end that has one code more. Returns the scale's bits. NaN becomes 0 with a scale of NaN.
template <KvType kType>
uint16_t encode_group(const float* x, int n, uint8_t* codes) {
  float furthest = 0;
  for (int i = 0; i < n; ++i) {
    if (__builtin_fabsf(x[i]) > __builtin_fabsf(furthest) || x[i] != x[i]) {
      furthest = x[i];
    }
  }
  constexpr float kEnd = kType == KvType::q8 ? 127.0f : -8.0f;
  const uint16_t bits = float_to_bf16_bits(furthest / kEnd);
  const float scale = bf16_bits_to_float(bits);
  const float inverse = scale != 0 ? 1.0f / scale : 0.0f;
  for (int i = 0; i < n; ++i) {
    float code = __builtin_rintf(x[i] * inverse);
    constexpr float kLow = kType == KvType::q8 ? -127.0f : -8.0f;
    constexpr float kHigh = kType == KvType::q8 ? 127.0f : 7.0f;
    code = code < kLow ? kLow : code > kHigh ? kHigh : code == code ? code : 0.0f;
    const int whole = static_cast<int>(code);
    codes[i] = static_cast<uint8_t>(kType == KvType::q8 ? whole : whole + 8);
  }
  return bits;
}

// A key goes to column `slot` of keys [dimension][position], a value to row `slot` of values.
template <KvType kType>
void store_coded_key(std::byte* stored, int width, int slot, float* row, int dim) {
  auto* codes = reinterpret_cast<uint8_t*>(stored) + slot;
  auto* scales =
      reinterpret_cast<uint16_t*>(stored + kv_code_bytes(kType, width) * kKvBlock) + slot;
  turn_row(row, dim);
  uint8_t group[kKvGroup];
  for (int d = 0; d < dim; d += kKvGroup) {
    const int n = dim - d < kKvGroup ? dim - d : kKvGroup;
    scales[d / kKvGroup * kKvBlock] = encode_group<kType>(row + d, n, group);
    if constexpr (kType == KvType::q8) {
      for (int i = 0; i < n; ++i) {
        codes[(d + i) * kKvBlock] = group[i];
      }
    } else {
      for (int i = 0; i < n; i += 2) {
        const uint8_t high = i + 1 < n ? group[i + 1] : 8;
        codes[(d + i) / 2 * kKvBlock] = static_cast<uint8_t>(group[i] | high << 4);
      }
    }
  }
}

template <KvType kType>
void store_coded_value(std::byte* stored, int width, int slot, float* row, int dim) {
  const auto bytes = static_cast<int64_t>(kv_code_bytes(kType, width));
  auto* codes = reinterpret_cast<uint8_t*>(stored) + slot * bytes;
  auto* scales = reinterpret_cast<uint16_t*>(stored + bytes * kKvBlock) + slot * kv_groups(width);
  turn_row(row, dim);
  for (int d = 0; d < width; d += kKvGroup) {
    const int n = dim - d < kKvGroup ? dim - d : kKvGroup;
    uint8_t group[kKvGroup];
    memset(group, kType == KvType::q8 ? 0 : 8, sizeof(group));
    scales[d / kKvGroup] = encode_group<kType>(row + d, n, group);
    if constexpr (kType == KvType::q8) {
      memcpy(codes + d, group, static_cast<size_t>(width - d < kKvGroup ? width - d : kKvGroup));
    } else {
      for (int i = 0; i < 16; ++i) {
        codes[d / 2 + i] = static_cast<uint8_t>(group[i] | group[i + 16] << 4);
      }
    }
  }
}

// Keys [dim][kKvBlock], or values [kKvBlock][width], of a block as floats.
inline const float* keys_as_floats(
    KvType type, const std::byte* stored, int dim, int width, float* room) {
  if (type == KvType::f32) {
    return reinterpret_cast<const float*>(stored);
  }
  with_keys(type, [&]<typename Keys>() {
    const Keys keys(stored, width);
    for (int d = 0; d < dim; ++d) {
      for (int c = 0; c < kKvBlock; c += kLanes) {
        F x = keys.vector(d, c);
        if constexpr (Keys::kScaled) {
          x = mul(x, keys.scale(d, c));
        }
        store(room + d * kKvBlock + c, x);
      }
    }
  });
  return room;
}

inline const float* values_as_floats(KvType type, const std::byte* stored, int width, float* room) {
  if (type == KvType::f32) {
    return reinterpret_cast<const float*>(stored);
  }
  with_values(type, [&]<typename Values>() {
    const Values values(stored, width);
    for (int p = 0; p < kKvBlock; ++p) {
      for (int i = 0; i < width; i += kLanes) {
        F x = values.vector(p, i);
        if constexpr (Values::kScaled) {
          x = mul(x, splat(values.scale(p, i)));
        }
        store(room + p * width + i, x);
      }
    }
  });
  return room;
}

}  // namespace
}  // namespace quince::kernels
