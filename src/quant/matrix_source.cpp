#include "quant/matrix_source.h"

#include <algorithm>
#include <array>
#include <initializer_list>

#include "base/error.h"

namespace quince {
namespace {

namespace json = boost::json;

template <typename T>
bool one_of(const T& value, std::initializer_list<T> values) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

int int_field(
    const json::object& object, std::string_view key, int otherwise, const std::string& at) {
  const json::value* value = object.if_contains(key);
  if (!value || value->is_null()) {
    return otherwise;
  }
  if (!value->is_int64() || value->get_int64() < 1 || value->get_int64() > 4096) {
    throw UserError(
        "{}: \"{}\" is {}, want a small positive integer", at, key, json::serialize(*value));
  }
  return static_cast<int>(value->get_int64());
}

// `object` with its missing keys taken from `defaults`.
MlxLayout parse_layout(
    const json::object& object, const json::object& defaults, const std::string& at) {
  MlxLayout layout;
  const json::value* mode = object.if_contains("mode");
  if (!mode && &object != &defaults && !object.contains("bits")) {
    mode = defaults.if_contains("mode");
  }
  if (mode && !mode->is_null()) {
    if (!mode->is_string()) {
      throw UserError("{}: \"mode\" is {}, want a string", at, json::serialize(*mode));
    }
    layout.mode = mode->get_string().c_str();
  }
  const bool affine = layout.mode == "affine";
  if (!affine && !one_of<std::string>(layout.mode, {"mxfp4", "mxfp8", "nvfp4"})) {
    throw UserError("{}: \"mode\" is \"{}\", want affine, mxfp4, mxfp8 or nvfp4", at, layout.mode);
  }
  const int usual_group = affine ? 64 : layout.mode == "nvfp4" ? 16 : 32;
  const int usual_bits = layout.mode == "mxfp8" ? 8 : 4;
  layout.group =
      int_field(object, "group_size", int_field(defaults, "group_size", usual_group, at), at);
  layout.bits = int_field(object, "bits", int_field(defaults, "bits", usual_bits, at), at);
  if (affine && !one_of(layout.bits, {2, 3, 4, 5, 6, 8})) {
    throw UserError("{}: \"bits\" is {}, want 2, 3, 4, 5, 6 or 8", at, layout.bits);
  }
  if (affine && !one_of(layout.group, {32, 64, 128})) {
    throw UserError("{}: \"group_size\" is {}, want 32, 64 or 128", at, layout.group);
  }
  if (!affine && (layout.bits != usual_bits || layout.group != usual_group)) {
    throw UserError(
        "{}: mode {} with {} bits and groups of {}, want {} bits and groups of {}",
        at,
        layout.mode,
        layout.bits,
        layout.group,
        usual_bits,
        usual_group);
  }
  return layout;
}

// Overrides are keyed by the layer's path as the checkpoint spells it, which may carry or lack the
// prefixes that loading normalises.
const json::value* find_override(const json::object& quantization, std::string_view path) {
  std::vector<std::string> spellings{std::string(path), "language_model." + std::string(path)};
  constexpr std::string_view kModel = "model.";
  if (path.starts_with(kModel)) {
    const std::string rest(path.substr(kModel.size()));
    spellings.push_back(rest);
    spellings.push_back("model.language_model." + rest);
    spellings.push_back("language_model." + rest);
  }
  for (const std::string& spelling : spellings) {
    if (const json::value* found = quantization.if_contains(spelling)) {
      return found;
    }
  }
  return nullptr;
}

void check_shape(
    const TensorView& tensor,
    std::vector<int64_t> want,
    const std::string& why,
    const Weights& weights) {
  if (tensor.shape != want) {
    throw UserError(
        "{}: shape {} in {}, want {} ({})",
        tensor.name,
        shape_text(tensor.shape),
        weights.source(),
        shape_text(want),
        why);
  }
}

void check_triple(const MatrixSource& source, const Weights& weights) {
  const MlxLayout& layout = *source.layout;
  const std::string why = fmt::format(
      "[{}, {}] in {} bits, groups of {}, by \"quantization\" of config.json",
      source.rows,
      source.columns,
      layout.bits,
      layout.group);
  if (source.columns % layout.group != 0 || source.columns * layout.bits % 32 != 0) {
    throw UserError(
        "{}: {} columns in {} cannot be {} bits in groups of {}",
        source.weight.name,
        source.columns,
        weights.source(),
        layout.bits,
        layout.group);
  }
  check_shape(source.weight, {source.rows, source.columns * layout.bits / 32}, why, weights);
  check_shape(*source.scales, {source.rows, source.columns / layout.group}, why, weights);
  if (source.biases) {
    check_shape(*source.biases, source.scales->shape, why, weights);
    if (source.biases->type != source.scales->type) {
      throw UserError(
          "{}: type {} in {}, want {} as the scales",
          source.biases->name,
          info(source.biases->type).name,
          weights.source(),
          info(source.scales->type).name);
    }
  }
  const TensorType scale = source.scales->type;
  const bool floating =
      scale == TensorType::f32 || scale == TensorType::f16 || scale == TensorType::bf16;
  const bool affine = layout.mode == "affine";
  if (affine ? !floating : scale != TensorType::u8) {
    throw UserError(
        "{}: type {} in {}, want {}",
        source.scales->name,
        info(scale).name,
        weights.source(),
        affine ? "F16, BF16 or F32" : "U8");
  }
}

}  // namespace

std::optional<MlxLayout> mlx_layout(
    const json::object& quantization, std::string_view path, std::string_view source) {
  if (quantization.empty()) {
    return std::nullopt;
  }
  const std::string at = fmt::format("{}: \"quantization\" of config.json", source);
  const json::value* own = find_override(quantization, path);
  if (!own || (own->is_bool() && own->get_bool())) {
    return parse_layout(quantization, quantization, at);
  }
  if (own->is_bool()) {
    return std::nullopt;
  }
  if (!own->is_object()) {
    throw UserError("{}: \"{}\" is {}, want an object or false", at, path, json::serialize(*own));
  }
  return parse_layout(own->get_object(), quantization, fmt::format("{}, \"{}\"", at, path));
}

MatrixSource take_matrix(Weights& weights, const std::string& path, int64_t rows, int64_t columns) {
  MatrixSource source;
  source.path = path;
  source.rows = rows;
  source.columns = columns;
  source.weight = weights.take(path + ".weight");
  source.scales = weights.maybe(path + ".scales");
  if (!source.scales) {
    if (source.weight.type == TensorType::u32) {
      throw UserError(
          "{}.scales: missing in {}, though the weight is packed", path, weights.source());
    }
    check_shape(source.weight, {rows, columns}, "from config.json", weights);
    return source;
  }
  source.layout = mlx_layout(weights.quantization(), path, weights.source());
  if (!source.layout) {
    throw UserError(
        "{}.scales: present in {}, but \"quantization\" of config.json leaves this layer plain",
        path,
        weights.source());
  }
  if (source.weight.type != TensorType::u32) {
    throw UserError(
        "{}: type {} in {}, want U32 beside its scales",
        source.weight.name,
        info(source.weight.type).name,
        weights.source());
  }
  if (source.layout->mode == "affine") {
    source.biases = weights.take(path + ".biases");
  }
  check_triple(source, weights);
  return source;
}

}  // namespace quince
