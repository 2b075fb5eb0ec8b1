#include "kernels/pack_codes.h"

#include "kernels/pack_vectors.h"
#include "weights/ggml_blocks.h"

namespace quince::kernels {

namespace {

// The 32 codes of a chunk of one row: columns 0-15 and 16-31.
struct Codes {
  Bytes16 low;
  Bytes16 high;
};

const uint8_t* at(const std::byte* row, int64_t offset) {
  return reinterpret_cast<const uint8_t*>(row) + offset;
}

// Bit i of `bits` as 16 in byte i.
Codes fifth_bits(const uint8_t* bits) {
  constexpr Bytes16 kBit{1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  Bytes16 from{};
  std::memcpy(&from, bits, 4);
  const Bytes16 low =
      __builtin_shufflevector(from, from, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
  const Bytes16 high =
      __builtin_shufflevector(from, from, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
  return {
      reinterpret_cast<Bytes16>((low & kBit) != 0) & 16,
      reinterpret_cast<Bytes16>((high & kBit) != 0) & 16};
}

// ---- GGML's types; layouts in weights/ggml_blocks.h

template <int kBytes, int kCodes>
struct Q4 {
  static constexpr int kBits = 4;
  static Codes get(const std::byte* row, int64_t chunk) {
    const Bytes16 in = load16(at(row, chunk * kBytes + kCodes));
    return {in & 15, in >> 4};
  }
};

template <int kBytes, int kCodes>
struct Q5 {
  static constexpr int kBits = 5;
  static Codes get(const std::byte* row, int64_t chunk) {
    const uint8_t* from = at(row, chunk * kBytes + kCodes);
    const Codes fifth = fifth_bits(from);
    const Bytes16 in = load16(from + 4);
    return {(in & 15) | fifth.low, (in >> 4) | fifth.high};
  }
};

struct Q8 {
  static constexpr int kBits = 8;
  static Codes get(const std::byte* row, int64_t chunk) {
    const uint8_t* in = at(row, chunk * 34 + 2);
    return {load16(in) ^ 0x80, load16(in + 16) ^ 0x80};
  }
};

// (32 bytes at `in` >> shift) & mask
Codes shifted(const uint8_t* in, int shift, uint8_t mask) {
  const auto s = static_cast<uint8_t>(shift);
  return {(load16(in) >> s) & mask, (load16(in + 16) >> s) & mask};
}

struct Q2K {
  static constexpr int kBits = 2;
  static Codes get(const std::byte* row, int64_t chunk) {
    const int sub = static_cast<int>(chunk % 8);
    return shifted(at(row, chunk / 8 * 84 + 16 + sub / 4 * 32), 2 * (sub % 4), 3);
  }
};

struct Q3K {
  static constexpr int kBits = 3;
  static Codes get(const std::byte* row, int64_t chunk) {
    const int sub = static_cast<int>(chunk % 8);
    const uint8_t* block = at(row, chunk / 8 * 110);
    const Codes low = shifted(block + 32 + sub / 4 * 32, 2 * (sub % 4), 3);
    const Codes high = shifted(block, sub, 1);
    return {low.low | high.low << 2, low.high | high.high << 2};
  }
};

struct Q4K {
  static constexpr int kBits = 4;
  static Codes get(const std::byte* row, int64_t chunk) {
    const int sub = static_cast<int>(chunk % 8);
    return shifted(at(row, chunk / 8 * 144 + 16 + sub / 2 * 32), 4 * (sub % 2), 15);
  }
};

struct Q5K {
  static constexpr int kBits = 5;
  static Codes get(const std::byte* row, int64_t chunk) {
    const int sub = static_cast<int>(chunk % 8);
    const uint8_t* block = at(row, chunk / 8 * 176);
    const Codes low = shifted(block + 48 + sub / 2 * 32, 4 * (sub % 2), 15);
    const Codes high = shifted(block + 16, sub, 1);
    return {low.low | high.low << 4, low.high | high.high << 4};
  }
};

struct Q6K {
  static constexpr int kBits = 6;
  static Codes get(const std::byte* row, int64_t chunk) {
    const int half = static_cast<int>(chunk % 8) / 4;
    const int quarter = static_cast<int>(chunk % 4);
    const uint8_t* block = at(row, chunk / 8 * 210);
    const Codes low = shifted(block + 64 * half + 32 * (quarter % 2), 4 * (quarter / 2), 15);
    const Codes high = shifted(block + 128 + 32 * half, 2 * quarter, 3);
    return {low.low | high.low << 4, low.high | high.high << 4};
  }
};

// ---- MLX: code i lies at bit i * bits of the row, read as one little-endian number

template <int kWidth>
struct Mlx {
  static constexpr int kBits = kWidth;
  static Codes get(const std::byte* row, int64_t chunk) {
    const uint8_t* in = at(row, chunk * kBits * 4);
    if constexpr (kBits == 8) {
      return {load16(in), load16(in + 16)};
    } else if constexpr (kBits == 4) {
      const Bytes16 both = load16(in);
      const Bytes16 even = both & 15;
      const Bytes16 odd = both >> 4;
      return {
          __builtin_shufflevector(
              even, odd, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
          __builtin_shufflevector(
              even, odd, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)};
    } else {
      // 8 codes are kBits bytes: spread each eight over the bytes of a 64-bit number.
      uint64_t out[4];
      for (int eight = 0; eight < 4; ++eight) {
        uint64_t stream = 0;
        std::memcpy(&stream, in + eight * kBits, kBits);
        out[eight] = spread(stream);
      }
      return {load16(out), load16(out + 2)};
    }
  }

  // Halves the distance that codes have to move in each step.
  static uint64_t spread(uint64_t stream) {
    constexpr uint64_t kCode = (uint64_t{1} << kBits) - 1;
    constexpr uint64_t kFour = (uint64_t{1} << (4 * kBits)) - 1;
    constexpr uint64_t kTwo = ((uint64_t{1} << (2 * kBits)) - 1) * 0x0000000100000001u;
    stream = (stream & kFour) | (stream >> (4 * kBits) & kFour) << 32;
    stream = (stream & kTwo) | (stream >> (2 * kBits) & kTwo) << 16;
    constexpr uint64_t kOne = kCode * 0x0001000100010001u;
    return (stream & kOne) | (stream >> kBits & kOne) << 8;
  }
};

// ---- planes

Words4 words(Bytes16 v) {
  return reinterpret_cast<Words4>(v);
}

// Steps 0, 2, 4, 6 and 1, 3, 5, 7.
Bytes16 even_steps(const Codes& c) {
  return reinterpret_cast<Bytes16>(
      __builtin_shufflevector(words(c.low), words(c.high), 0, 2, 4, 6));
}
Bytes16 odd_steps(const Codes& c) {
  return reinterpret_cast<Bytes16>(
      __builtin_shufflevector(words(c.low), words(c.high), 1, 3, 5, 7));
}

// Word v: steps 2v | 2v + 1 << kWidth, of the kWidth bits of each code from kShift on.
template <int kShift, int kWidth>
Bytes16 pairs_of_steps(const Codes& c) {
  constexpr uint8_t kMask = (1 << kWidth) - 1;
  return ((even_steps(c) >> uint8_t{kShift}) & kMask) | ((odd_steps(c) >> uint8_t{kShift}) & kMask)
                                                            << uint8_t{kWidth};
}

// Words 0, 1: words 0, 2 | words 1, 3 << kWidth. Words 2, 3: of no use.
template <int kWidth>
Bytes16 join_words(Bytes16 v) {
  const Words4 even = __builtin_shufflevector(words(v), words(v), 0, 2, 0, 2);
  const Words4 odd = __builtin_shufflevector(words(v), words(v), 1, 3, 1, 3);
  return reinterpret_cast<Bytes16>(even) | reinterpret_cast<Bytes16>(odd) << uint8_t{kWidth};
}

// The first kVectors words of each of 4 rows to as many vectors.
template <int kVectors>
void put_words(const Bytes16 (&rows)[4], std::byte* out) {
  Words4 v[4] = {words(rows[0]), words(rows[1]), words(rows[2]), words(rows[3])};
  transpose4(v);
  for (int i = 0; i < kVectors; ++i) {
    store16(out + i * kVector, v[i]);
  }
}

// Rows 4 * quad .. + 3 of a chunk.
template <int kBits>
void put_quad(const Codes (&codes)[4], int quad, std::byte* chunk) {
  std::byte* out = chunk + 16 * quad;
  Bytes16 plane[4];
  if constexpr (kBits == 8) {
    for (int half = 0; half < 2; ++half) {
      for (int r = 0; r < 4; ++r) {
        plane[r] = half == 0 ? codes[r].low : codes[r].high;
      }
      put_words<4>(plane, out + half * 4 * kVector);
    }
  } else if constexpr (kBits >= 4) {
    for (int r = 0; r < 4; ++r) {
      plane[r] = pairs_of_steps<0, 4>(codes[r]);
    }
    put_words<4>(plane, out);
  } else {
    for (int r = 0; r < 4; ++r) {
      plane[r] = join_words<4>(pairs_of_steps<0, 2>(codes[r]));
    }
    put_words<2>(plane, out);
  }
  if constexpr (kBits == 6) {
    for (int r = 0; r < 4; ++r) {
      plane[r] = join_words<4>(pairs_of_steps<4, 2>(codes[r]));
    }
    put_words<2>(plane, out + 4 * kVector);
  }
  if constexpr (kBits == 3 || kBits == 5) {
    for (int r = 0; r < 4; ++r) {
      plane[r] = join_words<4>(join_words<2>(pairs_of_steps<kBits - 1, 1>(codes[r])));
    }
    put_words<1>(plane, out + (kBits - 1) * kVector);
  }
}

template <typename Format>
void pack_all(const std::byte* const* rows, int64_t chunks, std::byte* block) {
  for (int64_t chunk = 0; chunk < chunks; ++chunk, block += Format::kBits * kVector) {
    for (int quad = 0; quad < 4; ++quad) {
      Codes codes[4];
      for (int r = 0; r < 4; ++r) {
        codes[r] = Format::get(rows[4 * quad + r], chunk);
      }
      put_quad<Format::kBits>(codes, quad, block);
    }
  }
}

}  // namespace

PackCodes pack_codes(TensorType type) {
  switch (type) {
    case TensorType::q4_0:
      return pack_all<Q4<18, 2>>;
    case TensorType::q4_1:
      return pack_all<Q4<20, 4>>;
    case TensorType::q5_0:
      return pack_all<Q5<22, 2>>;
    case TensorType::q5_1:
      return pack_all<Q5<24, 4>>;
    case TensorType::q8_0:
      return pack_all<Q8>;
    case TensorType::q2_k:
      return pack_all<Q2K>;
    case TensorType::q3_k:
      return pack_all<Q3K>;
    case TensorType::q4_k:
      return pack_all<Q4K>;
    case TensorType::q5_k:
      return pack_all<Q5K>;
    case TensorType::q6_k:
      return pack_all<Q6K>;
    default:
      return nullptr;
  }
}

PackCodes pack_mlx_codes(int bits) {
  switch (bits) {
    case 2:
      return pack_all<Mlx<2>>;
    case 3:
      return pack_all<Mlx<3>>;
    case 4:
      return pack_all<Mlx<4>>;
    case 5:
      return pack_all<Mlx<5>>;
    case 6:
      return pack_all<Mlx<6>>;
    default:
      return pack_all<Mlx<8>>;
  }
}

void pack_bytes(const uint8_t* codes, std::byte* chunk) {
  for (int quad = 0; quad < 4; ++quad) {
    Codes rows[4];
    for (int r = 0; r < 4; ++r) {
      const uint8_t* row = codes + (4 * quad + r) * kChunk;
      rows[r] = {load16(row), load16(row + 16)};
    }
    put_quad<8>(rows, quad, chunk);
  }
}

}  // namespace quince::kernels
