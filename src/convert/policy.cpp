#include "convert/policy.h"

#include <fmt/format.h>

#include "quant/quantize.h"

namespace quince {

namespace {

bool is_plain(TensorType type) {
  return info(type).block == 1 && type != TensorType::u32;
}

}  // namespace

bool operator==(const MlxLayout& a, const MlxLayout& b) {
  return a.bits == b.bits && a.group == b.group && a.mode == b.mode;
}

std::string describe(const MlxLayout& layout) {
  return layout.mode == "affine" ? fmt::format("{}-bit g{}", layout.bits, layout.group)
                                 : layout.mode;
}

QuantPolicy keep_policy() {
  return [](const MatrixInfo& matrix) -> Decision {
    if (matrix.same_codes) {
      return {matrix.same_codes, ""};
    }
    if (is_plain(matrix.type)) {
      return {};
    }
    MlxLayout bytes{8, 32, "affine"};
    if (can_quantize(matrix.columns, bytes)) {
      return {bytes, ""};
    }
    return {
        std::nullopt, fmt::format("{} columns are no multiple of 32: left plain", matrix.columns)};
  };
}

QuantPolicy dequantize_policy() {
  return [](const MatrixInfo&) -> Decision { return {}; };
}

QuantPolicy uniform_policy(MlxLayout wanted) {
  return [wanted](const MatrixInfo& matrix) -> Decision {
    if (can_quantize(matrix.columns, wanted)) {
      return {wanted, ""};
    }
    if (wanted.mode == "affine") {
      for (int group : {64, 32}) {
        MlxLayout smaller{wanted.bits, group, wanted.mode};
        if (group < wanted.group && can_quantize(matrix.columns, smaller)) {
          return {
              smaller,
              fmt::format(
                  "{} columns are no multiple of {}: groups of {}",
                  matrix.columns,
                  wanted.group,
                  group)};
        }
      }
    }
    return {
        std::nullopt,
        fmt::format(
            "{} columns are no multiple of {}: left plain",
            matrix.columns,
            wanted.mode == "affine" ? 32 : wanted.group)};
  };
}

}  // namespace quince
