// The cache of the native decoder: one KvStore for each kind of layer (layers that see the same
// window). See kernels/kv_store.h for who may touch what when.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <mlx/array.h>

#include "cache/cache.h"
#include "kernels/kv_store.h"
#include "nn/decoder_spec.h"

namespace quince {

// Which store a layer uses, and its place there.
struct LayerKinds {
  explicit LayerKinds(const DecoderSpec& spec);
  std::vector<int> windows;      // of each kind; 0: all positions
  std::vector<int> layer_count;  // of each kind
  std::vector<int> kind;         // of each layer
  std::vector<int> index;        // of each layer among those of its kind
};

class NativeCache : public Cache {
 public:
  // Throws UserError when options.max_size does not exceed options.keep.
  NativeCache(
      const DecoderSpec& spec,
      const LayerKinds& kinds,
      const CacheOptions& options,
      kernels::KvType type);

  int64_t length() const override;
  size_t bytes() const override;
  bool trim(int64_t n) override;
  void clear() override;

  // Room for n more tokens; the block lists of each kind. When it throws (out of memory)
  // the cache has been cleared.
  std::vector<std::shared_ptr<const kernels::KvBlocks>> append(int64_t n);
  const kernels::KvStore& store(size_t kind) const {
    return stores_[kind];
  }

  // Output of the last step that writes here: the next one takes it as an input, so that steps run
  // in their order and none is left out.
  std::optional<mlx::core::array> last_step;

 private:
  std::vector<kernels::KvStore> stores_;
};

}  // namespace quince
