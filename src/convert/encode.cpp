#include "convert/encode.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string_view>

#include <mlx/mlx.h>

#include "base/error.h"
#include "quant/affine_blocks.h"
#include "quant/quantize.h"

namespace quince {

namespace mx = mlx::core;

namespace {

constexpr int64_t kSliceElements = int64_t{2} << 20;  // of f32: 8 MB

using Bytes = std::vector<std::byte>;

int64_t slice_rows(int64_t columns) {
  return std::max<int64_t>(1, kSliceElements / std::max<int64_t>(columns, 1));
}

uint16_t bf16_bits(float value) {
  return mx::bfloat16_t(value).bits_;
}

uint16_t f16_bits(float value) {
  mx::float16_t half(value);
  uint16_t bits = 0;
  std::memcpy(&bits, &half, sizeof(bits));
  return bits;
}

// A number that f16 cannot hold would become infinity there, and every answer of the model NaN.
// What was infinite or NaN before stays what it is.
void check_range(std::span<const float> values, TensorType type, std::string_view name) {
  constexpr float kTooLarge = 65520.0f;  // rounds up to 2^16
  if (type != TensorType::f16) {
    return;
  }
  for (float value : values) {
    if (std::abs(value) >= kTooLarge && std::isfinite(value)) {
      throw UserError("{}: holds {}, which is too large for f16; use --dtype bf16", name, value);
    }
  }
}

// One such number makes a whole group of codes worthless.
void check_finite(std::span<const float> values, std::string_view name) {
  bool finite = true;
  for (float value : values) {
    finite &= std::isfinite(value);
  }
  if (!finite) {
    throw UserError(
        "{}: holds NaN or infinity and cannot be quantized; the file is damaged, download it again",
        name);
  }
}

// Rounds count numbers to type (f32, f16, bf16) and appends them.
void append_rounded(
    Bytes& out, std::span<const float> values, TensorType type, std::string_view name) {
  check_range(values, type, name);
  size_t count = values.size();
  size_t width = static_cast<size_t>(info(type).bytes);
  size_t begin = out.size();
  out.resize(begin + count * width);
  std::byte* to = out.data() + begin;
  if (type == TensorType::f32) {
    std::memcpy(to, values.data(), count * width);
    return;
  }
  for (size_t i = 0; i < count; i++) {
    uint16_t bits = type == TensorType::f16 ? f16_bits(values[i]) : bf16_bits(values[i]);
    std::memcpy(to + i * 2, &bits, 2);
  }
}

mx::Dtype mlx_dtype(TensorType type) {
  switch (type) {
    case TensorType::f32:
      return mx::float32;
    case TensorType::f16:
      return mx::float16;
    case TensorType::bf16:
      return mx::bfloat16;
    case TensorType::u8:
      return mx::uint8;
    case TensorType::u32:
      return mx::uint32;
    default:
      throw std::logic_error("no such scale type");
  }
}

// Rows of a plain row-major tensor as an array (copied).
mx::array rows_array(const TensorView& tensor, int64_t first, int64_t count) {
  mx::Shape shape{static_cast<int>(count), static_cast<int>(tensor.columns())};
  size_t row = tensor.bytes.size() / static_cast<size_t>(tensor.rows());
  std::byte* data = static_cast<std::byte*>(std::malloc(row * static_cast<size_t>(count)));
  std::memcpy(
      data,
      tensor.bytes.data() + row * static_cast<size_t>(first),
      row * static_cast<size_t>(count));
  return mx::array(static_cast<void*>(data), shape, mlx_dtype(tensor.type), [](void* memory) {
    std::free(memory);
  });
}

// Logical rows [first, first + count) as f32, whatever the source's form.
void decode(const ConvertJob& job, int64_t first, int64_t count, float* out) {
  if (!job.source_layout) {
    decode_rows(job.weight, first, count, out);
    return;
  }
  std::optional<mx::array> biases;
  if (job.biases) {
    biases = rows_array(*job.biases, first, count);
  }
  mx::array dense = mx::astype(
      mx::dequantize(
          rows_array(job.weight, first, count),
          rows_array(*job.scales, first, count),
          biases,
          job.source_layout->group,
          job.source_layout->bits,
          job.source_layout->mode),
      mx::float32);
  mx::eval(dense);
  std::memcpy(out, dense.data<float>(), dense.nbytes());
}

// Rows [first, first + count) of the file are done with: their pages need not stay in memory. Rows
// that are read in another order are let go at the end of the tensor.
void release(const TensorView& tensor, int64_t first, int64_t count) {
  if (tensor.file == nullptr) {
    return;
  }
  if (tensor.row_order.empty()) {
    size_t row = tensor.bytes.size() / static_cast<size_t>(std::max<int64_t>(tensor.rows(), 1));
    tensor.file->drop(
        tensor.bytes.subspan(row * static_cast<size_t>(first), row * static_cast<size_t>(count)));
  } else if (first + count == tensor.rows()) {
    tensor.file->drop(tensor.bytes);
  }
}

void append(Bytes& out, const void* data, size_t count) {
  const auto* bytes = static_cast<const std::byte*>(data);
  out.insert(out.end(), bytes, bytes + count);
}

void write_raw(const ConvertJob& job, const ByteSink& sink, const StepHook& step) {
  std::span<const std::byte> bytes = job.weight.bytes;
  constexpr size_t kStep = size_t{8} << 20;
  for (size_t begin = 0; begin < bytes.size(); begin += kStep) {
    auto part = bytes.subspan(begin, std::min(kStep, bytes.size() - begin));
    sink(part);
    if (job.weight.file != nullptr) {
      job.weight.file->drop(part);
    }
    step(static_cast<double>(begin + part.size()) / static_cast<double>(bytes.size()));
  }
}

// Calls make(first, count, out) for slices of the weight's rows, several at once, and hands their
// bytes on in order.
void in_slices(
    const TensorView& weight,
    int64_t slice,
    ThreadPool& pool,
    const std::function<void(int64_t first, int64_t count, Bytes& out)>& make,
    const ByteSink& sink,
    const StepHook& step) {
  int64_t rows = weight.rows();
  int64_t team = pool.size();
  std::vector<Bytes> results(static_cast<size_t>(team));
  for (int64_t begin = 0; begin < rows; begin += slice * team) {
    pool.run([&](Team& member) {
      int64_t first = begin + member.rank() * slice;
      Bytes& out = results[static_cast<size_t>(member.rank())];
      out.clear();
      if (first < rows) {
        make(first, std::min(slice, rows - first), out);
      }
    });
    for (const Bytes& bytes : results) {
      sink(bytes);
    }
    release(weight, begin, std::min(slice * team, rows - begin));
    step(static_cast<double>(std::min(begin + slice * team, rows)) / static_cast<double>(rows));
  }
}

void write_cast(
    const ConvertJob& job, ThreadPool& pool, const ByteSink& sink, const StepHook& step) {
  TensorType type = job.outputs.front().type;
  int64_t columns = job.source_layout ? job.columns : job.weight.columns();
  auto make = [&](int64_t first, int64_t count, Bytes& out) {
    std::vector<float> numbers(static_cast<size_t>(count * columns));
    decode(job, first, count, numbers.data());
    append_rounded(out, numbers, type, job.weight.name);
  };
  if (!job.source_layout) {
    in_slices(job.weight, slice_rows(columns), pool, make, sink, step);
    return;
  }
  Bytes out;  // MLX dequantizes: one thread of ours
  const int64_t rows = job.rows;
  for (int64_t first = 0; first < rows; first += slice_rows(columns)) {
    int64_t count = std::min(slice_rows(columns), rows - first);
    out.clear();
    make(first, count, out);
    sink(out);
    release(job.weight, first, count);
    step(static_cast<double>(first + count) / static_cast<double>(rows));
  }
}

// The file's own codes, scales and biases in MLX's packing.
void write_codes(
    const ConvertJob& job, ThreadPool& pool, const ByteSink& sink, const StepHook& step) {
  const int bits = job.layout->bits;
  const int64_t columns = job.columns;
  const int64_t groups = columns / kAffineGroup;
  std::vector<float> scales(static_cast<size_t>(job.rows * groups));
  std::vector<float> biases(scales.size());
  auto make = [&](int64_t first, int64_t count, Bytes& out) {
    std::vector<uint8_t> codes(static_cast<size_t>(columns));
    std::vector<uint32_t> words(static_cast<size_t>(columns * bits / 32));
    for (int64_t row = first; row < first + count; row++) {
      size_t at = static_cast<size_t>(row * groups);
      unpack_affine(
          job.weight.type,
          job.weight.row(row).data(),
          columns,
          codes.data(),
          scales.data() + at,
          biases.data() + at);
      pack_codes(codes.data(), columns, bits, words.data());
      append(out, words.data(), words.size() * sizeof(uint32_t));
    }
  };
  in_slices(job.weight, slice_rows(columns), pool, make, sink, step);
  Bytes out;
  append_rounded(out, scales, job.dtype, job.weight.name);
  sink(out);
  out.clear();
  append_rounded(out, biases, job.dtype, job.weight.name);
  sink(out);
}

void write_triple(const ConvertJob& job, const ByteSink& sink, const StepHook& step) {
  write_raw(job, sink, step);
  auto write_part = [&](const TensorView& part, TensorType type) {
    if (part.type == type) {
      sink(part.bytes);
      return;
    }
    std::vector<float> numbers(static_cast<size_t>(part.size()));
    decode_rows(part, 0, part.rows(), numbers.data());
    Bytes out;
    append_rounded(out, numbers, type, part.name);
    sink(out);
  };
  write_part(*job.scales, job.outputs[1].type);
  if (job.biases) {
    write_part(*job.biases, job.outputs[2].type);
  }
}

void write_quantized(const ConvertJob& job, const ByteSink& sink, const StepHook& step) {
  // As mlx-lm does: the weights are rounded to the output's type first.
  mx::Dtype dtype = mlx_dtype(job.dtype);
  int64_t slice = slice_rows(job.columns);
  std::vector<float> numbers;
  Bytes scales;
  Bytes biases;
  for (int64_t first = 0; first < job.rows; first += slice) {
    int64_t count = std::min(slice, job.rows - first);
    mx::Shape shape{static_cast<int>(count), static_cast<int>(job.columns)};
    numbers.resize(static_cast<size_t>(count * job.columns));
    decode(job, first, count, numbers.data());
    check_finite(numbers, job.weight.name);
    check_range(numbers, job.dtype, job.weight.name);
    mx::array dense(numbers.data(), shape, mx::float32);
    QuantizedMatrix part = quantize(mx::astype(dense, dtype), *job.layout);
    mx::array codes = mx::contiguous(part.codes);
    mx::array scale = mx::contiguous(part.scales);
    mx::eval({codes, scale});
    sink({reinterpret_cast<const std::byte*>(codes.data<uint32_t>()), codes.nbytes()});
    append(scales, scale.data<uint8_t>(), scale.nbytes());
    if (part.biases) {
      mx::array bias = mx::contiguous(*part.biases);
      mx::eval(bias);
      append(biases, bias.data<uint8_t>(), bias.nbytes());
    }
    release(job.weight, first, count);
    step(static_cast<double>(first + count) / static_cast<double>(job.rows));
  }
  sink(scales);
  if (job.outputs.size() > 2) {
    sink(biases);
  }
}

}  // namespace

void encode(const ConvertJob& job, ThreadPool& pool, const ByteSink& sink, const StepHook& step) {
  switch (job.kind) {
    case ConvertJob::Kind::raw:
      write_raw(job, sink, step);
      break;
    case ConvertJob::Kind::cast:
      write_cast(job, pool, sink, step);
      break;
    case ConvertJob::Kind::codes:
      write_codes(job, pool, sink, step);
      break;
    case ConvertJob::Kind::triple:
      write_triple(job, sink, step);
      break;
    case ConvertJob::Kind::quantize:
      write_quantized(job, sink, step);
      break;
  }
  mx::clear_cache();  // MLX keeps freed buffers for reuse; here every tensor has another size
}

}  // namespace quince
