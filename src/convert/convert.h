// Any model that can be opened, written as a directory in MLX's layout: safetensors under Hugging
// Face's names, config.json in mlx-lm's form, tokenizer and chat template beside it.
//
// Tensor by tensor and slice by slice: memory stays at a few dozen MB, however large a tensor is.
// The directory appears complete or not at all: everything is written into a hidden folder beside
// it, which is renamed at the end and removed when something fails.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "convert/policy.h"
#include "weights/model_files.h"

namespace quince {

struct ConvertOptions {
  std::filesystem::path out;
  bool force = false;               // replace what is there
  std::optional<TensorType> dtype;  // f32, f16 or bf16 for plain weights and scales; absent: the
                                    // checkpoint's own ("torch_dtype" of its config)
  QuantPolicy policy = keep_policy();
  uint64_t shard_bytes = 5'000'000'000;
  std::shared_ptr<ThreadPool> pool;  // required
};

struct ConvertHooks {
  // Fraction of the work done, and the tensor at hand.
  std::function<void(double fraction, const std::string& tensor)> progress;
  // Called often; throws to stop the conversion (nothing is left behind then).
  std::function<void()> check;
};

struct ConvertResult {
  int64_t parameters = 0;
  uint64_t bytes = 0;  // of all tensors written
  int shards = 0;
  std::vector<std::string> lines;  // what was done, by kind: "210 tensors Q4_1: kept as 4-bit g32"
  std::vector<std::string> exceptions;  // matrices that did not get what was asked for, and why
};

// Throws UserError: OUT exists, not enough disk space, a model whose form cannot be expressed.
ConvertResult convert(
    const ModelFiles& files, const ConvertOptions& options, const ConvertHooks& hooks = {});

}  // namespace quince
