#include "weights/tensor.h"

#include <algorithm>
#include <array>
#include <cassert>

#include <fmt/ranges.h>

#include "weights/float_formats.h"
#include "weights/ggml_blocks.h"

namespace quince {

namespace {

struct TypeRow {
  TensorTypeInfo info;
  BlockDecoder decode;  // null for types of one element a block
};

// In the order of TensorType.
constexpr std::array<TypeRow, 37> kTypes{{
    {{"F64", 1, 8}, nullptr},
    {{"F32", 1, 4}, nullptr},
    {{"F16", 1, 2}, nullptr},
    {{"BF16", 1, 2}, nullptr},
    {{"F8_E4M3", 1, 1}, nullptr},
    {{"F8_E5M2", 1, 1}, nullptr},
    {{"I64", 1, 8}, nullptr},
    {{"I32", 1, 4}, nullptr},
    {{"I16", 1, 2}, nullptr},
    {{"I8", 1, 1}, nullptr},
    {{"U64", 1, 8}, nullptr},
    {{"U32", 1, 4}, nullptr},
    {{"U16", 1, 2}, nullptr},
    {{"U8", 1, 1}, nullptr},
    {{"BOOL", 1, 1}, nullptr},
    {{"Q4_0", 32, 18}, decode_q4_0},
    {{"Q4_1", 32, 20}, decode_q4_1},
    {{"Q5_0", 32, 22}, decode_q5_0},
    {{"Q5_1", 32, 24}, decode_q5_1},
    {{"Q8_0", 32, 34}, decode_q8_0},
    {{"Q2_K", 256, 84}, decode_q2_k},
    {{"Q3_K", 256, 110}, decode_q3_k},
    {{"Q4_K", 256, 144}, decode_q4_k},
    {{"Q5_K", 256, 176}, decode_q5_k},
    {{"Q6_K", 256, 210}, decode_q6_k},
    {{"IQ1_S", 256, 50}, decode_iq1_s},
    {{"IQ1_M", 256, 56}, decode_iq1_m},
    {{"IQ2_XXS", 256, 66}, decode_iq2_xxs},
    {{"IQ2_XS", 256, 74}, decode_iq2_xs},
    {{"IQ2_S", 256, 82}, decode_iq2_s},
    {{"IQ3_XXS", 256, 98}, decode_iq3_xxs},
    {{"IQ3_S", 256, 110}, decode_iq3_s},
    {{"IQ4_NL", 32, 18}, decode_iq4_nl},
    {{"IQ4_XS", 256, 136}, decode_iq4_xs},
    {{"TQ1_0", 256, 54}, decode_tq1_0},
    {{"TQ2_0", 256, 66}, decode_tq2_0},
    {{"MXFP4", 32, 17}, decode_mxfp4},
}};
static_assert(kTypes.size() == static_cast<size_t>(TensorType::mxfp4) + 1);

const TypeRow& row_of(TensorType type) {
  return kTypes[static_cast<size_t>(type)];
}

template <typename Stored, typename Convert>
void convert(const std::byte* data, int64_t count, float* out, Convert to_float) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = to_float(load_unaligned<Stored>(data + i * sizeof(Stored)));
  }
}

template <typename Stored>
void convert_number(const std::byte* data, int64_t count, float* out) {
  convert<Stored>(data, count, out, [](Stored v) { return static_cast<float>(v); });
}

// `count` elements that lie one after the other; whole blocks for block types.
void decode(TensorType type, const std::byte* data, int64_t count, float* out) {
  switch (type) {
    case TensorType::f64:
      return convert_number<double>(data, count, out);
    case TensorType::f32:
      std::memcpy(out, data, count * sizeof(float));
      return;
    case TensorType::f16:
      return convert<uint16_t>(data, count, out, f16_to_f32);
    case TensorType::bf16:
      return convert<uint16_t>(data, count, out, bf16_to_f32);
    case TensorType::f8_e4m3:
      return convert<uint8_t>(data, count, out, f8_e4m3_to_f32);
    case TensorType::f8_e5m2:
      return convert<uint8_t>(data, count, out, f8_e5m2_to_f32);
    case TensorType::i64:
      return convert_number<int64_t>(data, count, out);
    case TensorType::i32:
      return convert_number<int32_t>(data, count, out);
    case TensorType::i16:
      return convert_number<int16_t>(data, count, out);
    case TensorType::i8:
      return convert_number<int8_t>(data, count, out);
    case TensorType::u64:
      return convert_number<uint64_t>(data, count, out);
    case TensorType::u32:
      return convert_number<uint32_t>(data, count, out);
    case TensorType::u16:
      return convert_number<uint16_t>(data, count, out);
    case TensorType::u8:
      return convert_number<uint8_t>(data, count, out);
    case TensorType::boolean:
      return convert<uint8_t>(data, count, out, [](uint8_t v) { return v ? 1.0f : 0.0f; });
    case TensorType::q4_0:
    case TensorType::q4_1:
    case TensorType::q5_0:
    case TensorType::q5_1:
    case TensorType::q8_0:
    case TensorType::q2_k:
    case TensorType::q3_k:
    case TensorType::q4_k:
    case TensorType::q5_k:
    case TensorType::q6_k:
    case TensorType::iq1_s:
    case TensorType::iq1_m:
    case TensorType::iq2_xxs:
    case TensorType::iq2_xs:
    case TensorType::iq2_s:
    case TensorType::iq3_xxs:
    case TensorType::iq3_s:
    case TensorType::iq4_nl:
    case TensorType::iq4_xs:
    case TensorType::tq1_0:
    case TensorType::tq2_0:
    case TensorType::mxfp4:
      return row_of(type).decode(data, count / row_of(type).info.block, out);
  }
}

}  // namespace

const TensorTypeInfo& info(TensorType type) {
  return row_of(type).info;
}

int64_t TensorView::size() const {
  return rows() * columns();
}

int64_t TensorView::rows() const {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) {
    rows *= shape[i];
  }
  return rows;
}

int64_t TensorView::columns() const {
  return shape.empty() ? 1 : shape.back();
}

std::span<const std::byte> TensorView::row(int64_t i) const {
  assert(i >= 0 && i < rows());
  const TensorTypeInfo& t = info(type);
  const auto row_bytes = static_cast<size_t>(columns() / t.block * t.bytes);
  const auto stored = static_cast<size_t>(row_order.empty() ? i : row_order[i]);
  return bytes.subspan(stored * row_bytes, row_bytes);
}

std::optional<uint64_t> tensor_bytes(TensorType type, std::span<const int64_t> shape) {
  const TensorTypeInfo& t = info(type);
  const int64_t columns = shape.empty() ? 1 : shape.back();
  if (columns < 0 || columns % t.block != 0) {
    return std::nullopt;
  }
  // Elements are bounded too: code above counts them in int64_t. A zero does not excuse a product
  // of the others that overflows.
  int64_t elements = 1;
  int64_t bytes = 0;
  bool empty = false;
  for (const int64_t dimension : shape) {
    if (dimension < 0) {
      return std::nullopt;
    }
    empty = empty || dimension == 0;
    if (__builtin_mul_overflow(elements, std::max<int64_t>(dimension, 1), &elements)) {
      return std::nullopt;
    }
  }
  if (__builtin_mul_overflow(elements / t.block, int64_t{t.bytes}, &bytes)) {
    return std::nullopt;
  }
  return empty ? 0 : static_cast<uint64_t>(bytes);
}

std::string shape_text(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

TensorView make_tensor(
    std::string name, TensorType type, std::vector<int64_t> shape, std::vector<std::byte> bytes) {
  assert(tensor_bytes(type, shape) == bytes.size());
  auto owned = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  TensorView view;
  view.name = std::move(name);
  view.type = type;
  view.shape = std::move(shape);
  view.bytes = *owned;
  view.owner = std::move(owned);
  return view;
}

void decode_rows(const TensorView& tensor, int64_t first, int64_t count, float* out) {
  assert(first >= 0 && count >= 0 && first + count <= tensor.rows());
  const int64_t columns = tensor.columns();
  if (count == 0 || columns == 0) {
    return;
  }
  if (tensor.row_order.empty()) {
    decode(tensor.type, tensor.row(first).data(), count * columns, out);
  } else {
    for (int64_t i = 0; i < count; ++i) {
      decode(tensor.type, tensor.row(first + i).data(), columns, out + i * columns);
    }
  }
  if (tensor.add != 0.0f) {
    for (int64_t i = 0; i < count * columns; ++i) {
      out[i] += tensor.add;
    }
  }
}

}  // namespace quince
