// The cache of the composed decoder: one KvLayer a layer.
#pragma once

#include <memory>
#include <vector>

#include "cache/cache.h"
#include "cache/composed_pages.h"
#include "cache/kv_layer.h"

namespace quince {

class ComposedCache : public Cache {
 public:
  // windows: of each layer, 0 for full attention. dtype: of keys and values whose format is open.
  // Throws UserError when options.max_size does not exceed options.keep, or when head_dim does not
  // fit the formats.
  ComposedCache(
      const std::vector<int>& windows,
      const CacheOptions& options,
      mlx::core::Dtype dtype,
      int kv_heads,
      int head_dim);

  std::shared_ptr<const PageCodec> codec() const override;

  CacheReach reach() const override {
    return reach_;
  }
  size_t page_bytes() const override {
    return shape_.windows.size() * layer_bytes_;
  }
  bool shares_at_once() const override {
    return false;
  }
  int64_t length() const override;
  size_t bytes() const override;
  bool trim(int64_t n) override;
  bool can_undo(int64_t n) const override;
  void clear() override;
  // Pages are views of all that the cache holds: nothing is copied until one is adopted, or until
  // this cache goes on.
  std::shared_ptr<CachePart> share(int64_t page) override;
  void adopt(std::span<const std::shared_ptr<CachePart>> pages, int64_t length) override;

  KvLayer& layer(size_t i) {
    snapshot_.reset();
    return *layers_[i];
  }
  const KvCoding& keys() const {
    return shape_.keys;
  }
  const KvCoding& values() const {
    return shape_.values;
  }

 private:
  std::vector<std::unique_ptr<KvLayer>> layers_;
  ComposedShape shape_;
  size_t layer_bytes_ = 0;
  CacheReach reach_;
  std::weak_ptr<const CacheSnapshot> snapshot_;  // of what it holds now, when somebody needs it
};

}  // namespace quince
