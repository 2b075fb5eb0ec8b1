// How weights are to be held and computed with; decided once at load.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include <mlx/dtype.h>

#include "base/thread_pool.h"

namespace quince {

// mlx: MLX's own operations on arrays (Metal, CUDA; on CPU the test oracle). native: our CPU
// kernels.
enum class KernelSet { mlx, native };

struct LoadOptions {
  KernelSet kernels = KernelSet::native;
  std::shared_ptr<ThreadPool> pool;  // loading and native kernels; required
  // KernelSet::mlx only: type of activations and dense weights. Absent: the checkpoint's own (bf16,
  // f16 or f32), as mlx-lm does; on CPU, f32 for quantized checkpoints.
  std::optional<mlx::core::Dtype> dtype;
  // KernelSet::mlx only: turn quantized weights into dense ones of dtype at load (test oracle).
  bool dequantize = false;
  // KernelSet::native only: what is computed for a token does not depend on how many others are
  // computed with it, of its sequence or of others: to the bit. All take the way of many; single
  // rows are slower on it.
  bool batch_invariant = false;
  std::function<void(double)> progress;  // 0..1, called on the loading thread
};

}  // namespace quince
