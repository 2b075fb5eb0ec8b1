#include "quant/matrix_weight.h"

#include <cstring>
#include <limits>
#include <memory>

#include <mlx/mlx.h>

#include "base/error.h"
#include "quant/affine_blocks.h"
#include "quant/parallel.h"

namespace quince {
namespace {

namespace mx = mlx::core;

mx::Shape to_shape(const TensorView& tensor) {
  mx::Shape shape;
  for (const int64_t n : tensor.shape) {
    if (n > std::numeric_limits<int32_t>::max()) {
      throw UserError("{}: dimension {} is larger than MLX takes", tensor.name, n);
    }
    shape.push_back(static_cast<int32_t>(n));
  }
  return shape;
}

std::optional<mx::Dtype> same_type(TensorType type) {
  switch (type) {
    case TensorType::f32:
      return mx::float32;
    case TensorType::f16:
      return mx::float16;
    case TensorType::bf16:
      return mx::bfloat16;
    case TensorType::u32:
      return mx::uint32;
    case TensorType::u8:
      return mx::uint8;
    default:
      return std::nullopt;
  }
}

mx::array uninitialized(mx::Shape shape, mx::Dtype type) {
  size_t bytes = mx::size_of(type);
  for (const auto n : shape) {
    bytes *= static_cast<size_t>(n);
  }
  return mx::array(mx::allocator::malloc(bytes), std::move(shape), type);
}

// Writes n numbers of f32 into element `at` of an f32, f16 or bf16 array.
void store(const float* from, int64_t n, mx::array& to, int64_t at) {
  if (to.dtype() == mx::float32) {
    std::memcpy(to.data<float>() + at, from, static_cast<size_t>(n) * sizeof(float));
  } else if (to.dtype() == mx::float16) {
    std::copy(from, from + n, to.data<mx::float16_t>() + at);
  } else {
    std::copy(from, from + n, to.data<mx::bfloat16_t>() + at);
  }
}

float round_to_f32(float x) {
  return x;
}
float round_to_f16(float x) {
  return static_cast<float>(static_cast<mx::float16_t>(x));
}
float round_to_bf16(float x) {
  return static_cast<float>(static_cast<mx::bfloat16_t>(x));
}

void release_pages(const TensorView& tensor) {
  if (tensor.file) {
    tensor.file->drop(tensor.bytes);
  }
}

// The tensor's bytes as an array of their own type; shared with the mapping when MLX can.
mx::array share(const TensorView& tensor, mx::Dtype type) {
  mx::Shape shape = to_shape(tensor);
  auto* data = const_cast<std::byte*>(tensor.bytes.data());
  bool copied = false;
  if (reinterpret_cast<uintptr_t>(data) % mx::size_of(type) != 0) {
    mx::array out = uninitialized(std::move(shape), type);
    std::memcpy(out.data<char>(), data, tensor.bytes.size());
    release_pages(tensor);
    return out;
  }
  // MLX calls the deleter at once when it has copied, else when the array dies.
  auto during = std::make_shared<bool>(true);
  mx::array out(data, std::move(shape), type, [keep = tensor, during, &copied](void*) {
    if (*during) {
      copied = true;
    }
  });
  *during = false;
  if (copied) {
    release_pages(tensor);
  }
  return out;
}

int64_t rows_a_chunk(int64_t columns) {
  return std::max<int64_t>(1, 65536 / std::max<int64_t>(1, columns));
}

mx::array decode(const TensorView& tensor, mx::Dtype type, ThreadPool& pool) {
  mx::array out = uninitialized(to_shape(tensor), type);
  const int64_t columns = tensor.columns();
  for_chunks(pool, tensor.rows(), rows_a_chunk(columns), [&](int64_t first, int64_t count) {
    std::vector<float> rows(static_cast<size_t>(count * columns));
    decode_rows(tensor, first, count, rows.data());
    store(rows.data(), count * columns, out, first * columns);
  });
  release_pages(tensor);
  return out;
}

// Block-typed rows to MLX's affine form: the codes of the file when its groups are of 32 columns,
// else decoded and quantized anew to 8 bits.
MatrixWeight load_blocks(const TensorView& tensor, mx::Dtype type, ThreadPool& pool) {
  const bool exact = affine_bits(tensor.type) != 0 && tensor.add == 0.0f;
  const int bits = exact ? affine_bits(tensor.type) : 8;
  const int64_t rows = tensor.rows();
  const int64_t columns = tensor.columns();
  const int64_t words = columns * bits / 32;
  const int64_t groups = columns / kAffineGroup;
  const auto n = static_cast<int32_t>(rows);
  mx::array codes = uninitialized({n, static_cast<int32_t>(words)}, mx::uint32);
  mx::array scales = uninitialized({n, static_cast<int32_t>(groups)}, type);
  mx::array biases = uninitialized({n, static_cast<int32_t>(groups)}, type);
  auto* packed = codes.data<uint32_t>();
  const auto round = type == mx::float32   ? round_to_f32
                     : type == mx::float16 ? round_to_f16
                                           : round_to_bf16;
  for_chunks(pool, rows, rows_a_chunk(columns), [&](int64_t first, int64_t count) {
    std::vector<uint8_t> code(static_cast<size_t>(columns));
    std::vector<float> scale(static_cast<size_t>(groups));
    std::vector<float> bias(static_cast<size_t>(groups));
    std::vector<float> row(exact ? 0 : static_cast<size_t>(columns));
    for (int64_t i = first; i < first + count; ++i) {
      if (exact) {
        const std::byte* from = tensor.row(i).data();
        unpack_affine(tensor.type, from, columns, code.data(), scale.data(), bias.data());
      } else {
        decode_rows(tensor, i, 1, row.data());
        quantize_affine_8(row.data(), columns, round, code.data(), scale.data(), bias.data());
      }
      pack_codes(code.data(), columns, bits, packed + i * words);
      store(scale.data(), groups, scales, i * groups);
      store(bias.data(), groups, biases, i * groups);
    }
  });
  release_pages(tensor);
  return MatrixWeight(
      std::move(codes), std::move(scales), std::move(biases), {bits, kAffineGroup, "affine"});
}

// GGML's MXFP4 block: an E8M0 exponent, then 16 bytes whose low nibbles are elements 0-15 and high
// nibbles 16-31. MLX holds the same codes in order and the exponents apart.
MatrixWeight load_mxfp4(const TensorView& tensor, ThreadPool& pool) {
  constexpr int64_t kBlockBytes = 17;
  const int64_t columns = tensor.columns();
  const int64_t groups = columns / 32;
  const auto n = static_cast<int32_t>(tensor.rows());
  mx::array codes = uninitialized({n, static_cast<int32_t>(columns / 8)}, mx::uint32);
  mx::array scales = uninitialized({n, static_cast<int32_t>(groups)}, mx::uint8);
  auto* packed = codes.data<uint32_t>();
  auto* exponents = scales.data<uint8_t>();
  for_chunks(pool, n, rows_a_chunk(columns), [&](int64_t first, int64_t count) {
    uint8_t code[32];
    for (int64_t i = first; i < first + count; ++i) {
      const auto* from = reinterpret_cast<const uint8_t*>(tensor.row(i).data());
      for (int64_t group = i * groups; group < (i + 1) * groups; ++group, from += kBlockBytes) {
        exponents[group] = from[0];
        for (int b = 0; b < 16; ++b) {
          code[b] = from[1 + b] & 15;
          code[b + 16] = from[1 + b] >> 4;
        }
        pack_codes(code, 32, 4, packed + group * 4);
      }
    }
  });
  release_pages(tensor);
  return MatrixWeight(std::move(codes), std::move(scales), std::nullopt, {4, 32, "mxfp4"});
}

MatrixWeight load_triple(const MatrixSource& source, mx::Dtype type, const LoadOptions& options) {
  mx::array codes = share(source.weight, mx::uint32);
  if (source.layout->mode != "affine") {
    return MatrixWeight(
        std::move(codes), share(*source.scales, mx::uint8), std::nullopt, *source.layout);
  }
  return MatrixWeight(
      std::move(codes),
      load_dense(*source.scales, type, options),
      load_dense(*source.biases, type, options),
      *source.layout);
}

}  // namespace

mx::array load_dense(const TensorView& tensor, mx::Dtype type, const LoadOptions& options) {
  const bool plain = tensor.add == 0.0f && tensor.row_order.empty();
  if (plain && same_type(tensor.type) == type) {
    return share(tensor, type);
  }
  return decode(tensor, type, *options.pool);
}

mx::Dtype natural_type(const MatrixSource& source) {
  switch ((source.scales ? *source.scales : source.weight).type) {
    case TensorType::f32:
    case TensorType::f64:
      return mx::float32;
    case TensorType::f16:
      return mx::float16;
    default:
      return mx::bfloat16;
  }
}

MatrixWeight MatrixWeight::load(
    const MatrixSource& source, mx::Dtype type, const LoadOptions& options) {
  if (source.layout) {
    MatrixWeight packed =
        load_triple(source, options.dequantize ? mx::Dtype(mx::float32) : type, options);
    if (!options.dequantize) {
      return packed;
    }
    mx::array dense = mx::astype(packed.dequantize(), type);
    dense.eval();
    return MatrixWeight(std::move(dense));
  }
  const TensorView& tensor = source.weight;
  const bool blocks = info(tensor.type).block > 1;
  if (blocks && !options.dequantize) {
    const bool mxfp4 = tensor.type == TensorType::mxfp4 && tensor.add == 0.0f;
    return mxfp4 ? load_mxfp4(tensor, *options.pool) : load_blocks(tensor, type, *options.pool);
  }
  return MatrixWeight(load_dense(tensor, type, options));
}

MatrixWeight::MatrixWeight(mx::array dense) : weight_(std::move(dense)) {
  transposed_ = mx::transpose(weight_);
  transposed_->eval();  // a view: the forward graph then starts from a leaf
}

MatrixWeight::MatrixWeight(
    mx::array codes, mx::array scales, std::optional<mx::array> biases, MlxLayout layout)
    : weight_(std::move(codes)),
      scales_(std::move(scales)),
      biases_(std::move(biases)),
      layout_(std::move(layout)) {}

mx::array MatrixWeight::matmul(const mx::array& x, const std::optional<mx::array>& bias) const {
  if (!layout_) {
    return bias ? mx::addmm(*bias, x, *transposed_) : mx::matmul(x, *transposed_);
  }
  mx::array y = mx::quantized_matmul(
      x,
      weight_,
      *scales_,
      biases_,
      /* transpose */ true,
      layout_->group,
      layout_->bits,
      layout_->mode);
  return bias ? mx::add(y, *bias) : y;
}

mx::array MatrixWeight::take_rows(const mx::array& ids) const {
  if (!layout_) {
    return mx::take(weight_, ids, 0);
  }
  std::optional<mx::array> biases;
  if (biases_) {
    biases = mx::take(*biases_, ids, 0);
  }
  return mx::dequantize(
      mx::take(weight_, ids, 0),
      mx::take(*scales_, ids, 0),
      biases,
      layout_->group,
      layout_->bits,
      layout_->mode);
}

mx::array MatrixWeight::dequantize() const {
  if (!layout_) {
    return weight_;
  }
  return mx::dequantize(weight_, *scales_, biases_, layout_->group, layout_->bits, layout_->mode);
}

size_t MatrixWeight::bytes() const {
  return weight_.nbytes() + (scales_ ? scales_->nbytes() : 0) + (biases_ ? biases_->nbytes() : 0);
}

std::string MatrixWeight::describe() const {
  if (layout_ && layout_->mode == "affine") {
    return fmt::format("{}-bit g{}", layout_->bits, layout_->group);
  }
  if (layout_) {
    return layout_->mode;
  }
  return weight_.dtype() == mx::float32 ? "f32" : weight_.dtype() == mx::float16 ? "f16" : "bf16";
}

}  // namespace quince
