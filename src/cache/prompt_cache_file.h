// Prompt caches as files, in mlx-lm's layout (mlx_lm.models.cache.save_prompt_cache): of layer i
// the tensors "i.0" and "i.1" with keys and values [1, kv_heads, rows, head_dim] (three tensors
// each when quantized), further numbers of its state as tensors or, by older versions, in the
// metadata, and there the names of the classes KVCache, RotatingKVCache or QuantizedKVCache. Files
// of ours also say which model and which tokens they are of, and have a checksum; mlx-lm ignores
// that. No MLX. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weights/tensor.h"

namespace quince {

struct PromptCacheLayer {
  std::string kind;      // class name
  int64_t length = 0;    // tokens appended so far
  int64_t max_size = 0;  // rotating: rows at most, the first `keep` of them for good; 0: all
  int64_t keep = 0;
  int64_t next = 0;  // rotating: row that the next token goes to
  int bits = 0;      // quantized
  int group = 0;
  int64_t rows = 0;                // of the tensors
  std::array<TensorView, 3> keys;  // quantized: codes, scales, biases
  std::array<TensorView, 3> values;

  // Where the keys and values of a position lie; nothing when they are not there.
  std::optional<int64_t> row_of(int64_t position) const;
};

struct PromptCacheFile {
  std::string source;
  std::vector<PromptCacheLayer> layers;
  int64_t length = 0;  // of all layers
  int kv_heads = 0;
  int head_dim = 0;
  std::optional<std::string> model;                        // identity; only in files of ours
  std::vector<int32_t> tokens;                             // likewise
  std::vector<std::pair<std::string, std::string>> notes;  // what else its writer noted

  // Rows [kv_heads][head_dim] of a position that is there, head h at h * stride.
  void read(int layer, int64_t position, int64_t stride, float* keys, float* values) const;
};

PromptCacheFile open_prompt_cache(const std::filesystem::path& path);  // throws UserError
PromptCacheFile parse_prompt_cache(
    std::span<const std::byte> bytes,
    std::string_view source,
    const std::shared_ptr<const MappedFile>& file);

// What is to be written: all layers hold the first `tokens` positions, as far as max_size allows.
struct PromptCacheSpec {
  struct Layer {
    int64_t max_size = 0;  // 0: KVCache, else RotatingKVCache
    int64_t keep = 0;
    // The positions from here on are there too: a ring is then written with more rows than it
    // needs, which mlx-lm takes off its beginning, and from which a shorter prompt can go on.
    int64_t first = std::numeric_limits<int64_t>::max();
  };
  std::vector<Layer> layers;
  int kv_heads = 0;
  int head_dim = 0;
  TensorType type = TensorType::f16;  // f32, f16, bf16
  std::vector<int32_t> tokens;
  std::string model;       // identity
  std::string model_name;  // what the user calls it; mlx-lm compares it with its --model
};

// rows: of a position in a layer, [kv_heads][head_dim]; false when it is not there. The file
// appears whole or not at all. Throws UserError.
void write_prompt_cache(
    const std::filesystem::path& path,
    const PromptCacheSpec& spec,
    const std::function<bool(int layer, int64_t position, float* keys, float* values)>& rows);

}  // namespace quince
