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

// Memory for the caches of a model: a pool for each kind.
std::vector<std::shared_ptr<kernels::KvPool>> make_kv_pools(
    const DecoderSpec& spec, const LayerKinds& kinds, kernels::KvType keys, kernels::KvType values);

class NativeCache : public Cache {
 public:
  // kinds outlive the cache. pools: of each kind, of one type. Throws UserError when
  // options.max_size does not exceed options.keep.
  NativeCache(
      const LayerKinds& kinds,
      const std::vector<std::shared_ptr<kernels::KvPool>>& pools,
      const CacheOptions& options);

  std::shared_ptr<const PageCodec> codec() const override;
  CacheReach reach() const override;
  size_t page_bytes() const override;
  bool shares_at_once() const override {
    return true;
  }
  int64_t length() const override;
  size_t bytes() const override;
  bool trim(int64_t n) override;
  bool can_undo(int64_t) const override {  // an append drops only what it does not look at
    return true;
  }
  void clear() override;
  std::shared_ptr<CachePart> share(int64_t page) override;
  void adopt(std::span<const std::shared_ptr<CachePart>> pages, int64_t length) override;

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
  std::vector<kernels::KvSpan> spans() const;

  const LayerKinds* kinds_;
  std::vector<std::shared_ptr<kernels::KvPool>> pools_;  // of each kind
  std::vector<kernels::KvStore> stores_;
};

}  // namespace quince
