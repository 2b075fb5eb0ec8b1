#include "quant/quantize.h"

#include <mlx/mlx.h>

#include "base/error.h"

namespace quince {

namespace mx = mlx::core;

bool can_quantize(int64_t columns, const MlxLayout& layout) {
  return columns > 0 && columns % layout.group == 0 && columns * layout.bits % 32 == 0;
}

QuantizedMatrix quantize(const mx::array& w, const MlxLayout& layout) {
  if (w.ndim() != 2 || !can_quantize(w.shape(-1), layout)) {
    throw UserError(
        "a matrix of {} columns cannot be held in groups of {}: the width must be a multiple of it",
        w.ndim() == 0 ? 0 : w.shape(-1),
        layout.group);
  }
  std::vector<mx::array> parts = mx::quantize(w, layout.group, layout.bits, layout.mode);
  mx::eval(parts);
  QuantizedMatrix out{parts[0], parts[1], std::nullopt};
  if (parts.size() > 2) {
    out.biases = parts[2];
  }
  return out;
}

}  // namespace quince
