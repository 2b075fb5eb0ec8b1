#include "quant/format_notes.h"

#include <fmt/format.h>

#include "quant/affine_blocks.h"

namespace quince {

void FormatNotes::add(const MatrixSource& source, const MatrixWeight& held) {
  const TensorType type = source.weight.type;
  const bool kept = source.layout ? held.quantized()
                                  : type == TensorType::mxfp4 || affine_bits(type) != 0 ||
                                        type == TensorType::f32 || type == TensorType::f16 ||
                                        type == TensorType::bf16;
  if (!kept) {
    ++counts_[{std::string(info(type).name), held.describe()}];
  }
}

std::vector<std::string> FormatNotes::lines() const {
  std::vector<std::string> lines;
  for (const auto& [formats, count] : counts_) {
    const auto& [file, held] = formats;
    lines.push_back(
        fmt::format("{} {} {} held as {}", count, file, count == 1 ? "matrix" : "matrices", held));
    if (held.starts_with("8-bit")) {
      lines.back() += " (each number within 1/510 of its group's range)";
    }
  }
  return lines;
}

}  // namespace quince
