#include "cache/kv_coding.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>
#include <mlx/ops.h>

#include "base/error.h"
#include "kernels/elementwise_bits.h"

namespace quince {

namespace mx = mlx::core;

namespace {

std::string_view type_name(mx::Dtype type) {
  return type == mx::float16 ? "f16" : type == mx::bfloat16 ? "bf16" : "f32";
}

float read_number(mx::Dtype type, const std::byte* from, size_t i) {
  if (type == mx::float32) {
    float value = 0;
    std::memcpy(&value, from + i * sizeof(value), sizeof(value));
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, from + i * sizeof(bits), sizeof(bits));
  return type == mx::float16 ? kernels::f16_bits_to_float(bits) : kernels::bf16_bits_to_float(bits);
}

void write_number(mx::Dtype type, float value, std::byte* to, size_t i) {
  if (type == mx::float32) {
    std::memcpy(to + i * sizeof(value), &value, sizeof(value));
    return;
  }
  const uint16_t bits =
      type == mx::float16 ? kernels::float_to_f16_bits(value) : kernels::float_to_bf16_bits(value);
  std::memcpy(to + i * sizeof(bits), &bits, sizeof(bits));
}

// Codes lie in words of 32 bits from the lowest on; words are little-endian, so bytes are too.
constexpr size_t kByte = 8;

unsigned read_code(const std::byte* codes, size_t i, size_t bits) {
  const auto byte = std::to_integer<unsigned>(codes[i * bits / kByte]);
  return byte >> (i * bits % kByte) & ((1u << bits) - 1);
}

// Memory must be zero before.
void write_code(std::byte* codes, size_t i, size_t bits, unsigned code) {
  codes[i * bits / kByte] |= static_cast<std::byte>(code << (i * bits % kByte));
}

}  // namespace

KvCoding::KvCoding(mx::Dtype type, std::optional<kernels::KvType> format, int head_dim)
    : type_(type), head_dim_(head_dim) {
  switch (format.value_or(kernels::KvType::f32)) {
    case kernels::KvType::f32:
      type_ = format ? mx::float32 : type;
      return;
    case kernels::KvType::f16:
      type_ = mx::float16;
      return;
    case kernels::KvType::bf16:
      type_ = mx::bfloat16;
      return;
    case kernels::KvType::q8:
      bits_ = 8;
      break;
    case kernels::KvType::q4:
      bits_ = 4;
      break;
  }
  group_ = head_dim % 64 == 0 ? 64 : 32;
  if (head_dim % group_ != 0) {
    throw UserError(
        "keys and values of head_dim {} cannot be kept in {} bits by MLX's kernels, which take "
        "multiples of 32: use f16",
        head_dim,
        bits_);
  }
}

std::vector<KvPlane> KvCoding::planes() const {
  if (!coded()) {
    return {{head_dim_, type_}};
  }
  const int groups = head_dim_ / group_;
  return {{head_dim_ * bits_ / 32, mx::uint32}, {groups, type_}, {groups, type_}};
}

size_t KvCoding::row_bytes() const {
  size_t sum = 0;
  for (const KvPlane& plane : planes()) {
    sum += plane.row_bytes();
  }
  return sum;
}

std::string KvCoding::name() const {
  return coded() ? fmt::format("q{} in groups of {} of {}", bits_, group_, type_name(type_))
                 : std::string(type_name(type_));
}

KvPlanes KvCoding::encode(const mx::array& rows) const {
  const mx::array x = mx::astype(rows, type_);
  return coded() ? mx::quantize(x, group_, bits_) : KvPlanes{x};
}

void KvCoding::decode(const std::byte* planes, size_t rows, float* out) const {
  const auto dim = static_cast<size_t>(head_dim_);
  if (!coded()) {
    for (size_t i = 0; i < rows * dim; ++i) {
      out[i] = read_number(type_, planes, i);
    }
    return;
  }
  const std::vector<KvPlane> shapes = this->planes();
  const std::byte* scales = planes + rows * shapes[0].row_bytes();
  const std::byte* biases = scales + rows * shapes[1].row_bytes();
  for (size_t i = 0; i < rows * dim; ++i) {
    const size_t group = i / static_cast<size_t>(group_);
    const auto code = static_cast<float>(read_code(planes, i, static_cast<size_t>(bits_)));
    out[i] = code * read_number(type_, scales, group) + read_number(type_, biases, group);
  }
}

void KvCoding::encode(const float* from, size_t rows, std::byte* planes) const {
  const auto dim = static_cast<size_t>(head_dim_);
  if (!coded()) {
    for (size_t i = 0; i < rows * dim; ++i) {
      write_number(type_, from[i], planes, i);
    }
    return;
  }
  const std::vector<KvPlane> shapes = this->planes();
  std::byte* scales = planes + rows * shapes[0].row_bytes();
  std::byte* biases = scales + rows * shapes[1].row_bytes();
  std::memset(planes, 0, rows * shapes[0].row_bytes());
  const auto size = static_cast<size_t>(group_);
  const float most = static_cast<float>((1u << static_cast<unsigned>(bits_)) - 1);
  for (size_t group = 0; group < rows * dim / size; ++group) {
    const float* x = from + group * size;
    const auto [low, high] = std::minmax_element(x, x + size);
    write_number(type_, (*high - *low) / most, scales, group);
    write_number(type_, *low, biases, group);
    const float scale = read_number(type_, scales, group);  // as rounded
    const float bias = read_number(type_, biases, group);
    for (size_t i = 0; i < size; ++i) {
      const float code = scale > 0.0f ? std::round((x[i] - bias) / scale) : 0.0f;
      write_code(
          planes,
          group * size + i,
          static_cast<size_t>(bits_),
          static_cast<unsigned>(std::clamp(code, 0.0f, most)));
    }
  }
}

}  // namespace quince
