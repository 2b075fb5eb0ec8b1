// The cache of the composed decoder: one KvLayer a layer.
#pragma once

#include <memory>
#include <vector>

#include "cache/cache.h"
#include "cache/kv_layer.h"

namespace quince {

class ComposedCache : public Cache {
 public:
  // windows: of each layer, 0 for full attention. dtype: of stored keys and values. Throws
  // UserError when options.max_size does not exceed options.keep.
  ComposedCache(
      const std::vector<int>& windows, const CacheOptions& options, mlx::core::Dtype dtype);

  int64_t length() const override;
  size_t bytes() const override;
  bool trim(int64_t n) override;
  void clear() override;

  KvLayer& layer(size_t i) {
    return *layers_[i];
  }
  mlx::core::Dtype dtype() const {
    return dtype_;
  }

 private:
  std::vector<std::unique_ptr<KvLayer>> layers_;
  mlx::core::Dtype dtype_;
};

}  // namespace quince
