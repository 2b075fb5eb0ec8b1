#include "cache/composed_cache.h"

#include <algorithm>

#include "base/error.h"

namespace quince {

ComposedCache::ComposedCache(
    const std::vector<int>& windows, const CacheOptions& options, mlx::core::Dtype dtype)
    : dtype_(dtype) {
  if (options.max_size && (options.keep < 0 || *options.max_size <= options.keep)) {
    throw UserError(
        "a rotating cache of {} tokens is too small: want more than the {} that are always kept",
        *options.max_size,
        options.keep);
  }
  const int most = options.max_size.value_or(0);
  for (const int window : windows) {
    if (window > 0) {
      layers_.push_back(std::make_unique<LinearKv>(most ? std::min(window, most) : window, 0));
    } else if (most) {
      layers_.push_back(std::make_unique<RingKv>(most, options.keep));
    } else {
      layers_.push_back(std::make_unique<LinearKv>(0, options.expected_length));
    }
  }
}

int64_t ComposedCache::length() const {
  return layers_.empty() ? 0 : layers_.front()->length();
}

size_t ComposedCache::bytes() const {
  size_t sum = 0;
  for (const auto& layer : layers_) {
    sum += layer->bytes();
  }
  return sum;
}

bool ComposedCache::trim(int64_t n) {
  const bool possible = std::all_of(
      layers_.begin(), layers_.end(), [n](const auto& layer) { return layer->can_trim(n); });
  if (possible) {
    for (auto& layer : layers_) {
      layer->trim(n);
    }
  }
  return possible;
}

void ComposedCache::clear() {
  for (auto& layer : layers_) {
    layer->clear();
  }
}

}  // namespace quince
