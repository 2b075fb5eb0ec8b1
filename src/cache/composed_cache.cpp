#include "cache/composed_cache.h"

#include <algorithm>

#include <mlx/ops.h>

#include "base/error.h"

namespace quince {

namespace mx = mlx::core;

namespace {

// One layer's rows of the last pages that have them all, cut from as few snapshots as hold them.
KvRows joined_rows(
    std::span<const std::shared_ptr<CachePart>> pages, size_t layer, int64_t length) {
  std::vector<KvPlanes> pieces;  // of each plane, the last first
  int64_t first = length;
  for (size_t i = pages.size(); i-- > 0 && first > 0;) {
    const auto& snapshot = static_cast<const ComposedPart&>(*pages[i]).snapshot();
    const KvRows& rows = snapshot->layers[layer];
    while (i > 0 && static_cast<const ComposedPart&>(*pages[i - 1]).snapshot() == snapshot) {
      --i;
    }
    const int64_t begin = std::max(rows.first, static_cast<int64_t>(i) * kCachePage);
    if (begin < first) {
      pieces.resize(rows.planes.size());
      for (size_t p = 0; p < pieces.size(); ++p) {
        pieces[p].push_back(rows_of(rows.planes[p], begin - rows.first, first - rows.first));
      }
      first = begin;
    }
    if (begin > static_cast<int64_t>(i) * kCachePage) {
      break;  // a window had forgotten the rest
    }
  }
  KvRows joined{{}, first};
  for (KvPlanes& plane : pieces) {
    std::reverse(plane.begin(), plane.end());
    joined.planes.push_back(mx::concatenate(plane, 2));
  }
  return joined;
}

}  // namespace

ComposedCache::ComposedCache(
    const std::vector<int>& windows,
    const CacheOptions& options,
    mlx::core::Dtype dtype,
    int kv_heads,
    int head_dim)
    : shape_{
          windows,
          0,
          0,
          kv_heads,
          head_dim,
          KvCoding(dtype, options.keys, head_dim),
          KvCoding(dtype, options.values, head_dim)},
      layer_bytes_(shape_.layer_bytes()) {
  if (options.max_size && (options.keep < 0 || *options.max_size <= options.keep)) {
    throw UserError(
        "a rotating cache of {} tokens is too small: want more than the {} that are always kept",
        *options.max_size,
        options.keep);
  }
  const int most = options.max_size.value_or(0);
  shape_.max_size = most;
  shape_.keep = most ? options.keep : 0;
  int64_t longest = 0;
  for (const int window : windows) {
    longest = std::max<int64_t>({longest, window, most - options.keep});
    if (window > 0) {
      layers_.push_back(std::make_unique<LinearKv>(most ? std::min(window, most) : window, 0));
    } else if (most) {
      layers_.push_back(std::make_unique<RingKv>(most, options.keep));
    } else {
      layers_.push_back(std::make_unique<LinearKv>(0, options.expected_length));
    }
  }
  if (longest > 0) {
    reach_.window = longest;
  }
  reach_.keep = most ? options.keep : 0;
}

std::shared_ptr<const PageCodec> ComposedCache::codec() const {
  return std::make_shared<ComposedPageCodec>(shape_);
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
    snapshot_.reset();
    for (auto& layer : layers_) {
      layer->trim(n);
    }
  }
  return possible;
}

bool ComposedCache::can_undo(int64_t n) const {
  return std::all_of(
      layers_.begin(), layers_.end(), [n](const auto& layer) { return layer->can_undo(n); });
}

void ComposedCache::clear() {
  snapshot_.reset();
  for (auto& layer : layers_) {
    layer->clear();
  }
}

std::shared_ptr<CachePart> ComposedCache::share(int64_t page) {
  std::shared_ptr<const CacheSnapshot> snapshot = snapshot_.lock();
  if (!snapshot || snapshot->length != length()) {
    auto made = std::make_shared<CacheSnapshot>();
    made->length = length();
    for (const auto& layer : layers_) {
      const std::optional<KvRows> rows = layer->rows();
      if (!rows) {
        return nullptr;
      }
      made->layers.push_back(*rows);
    }
    snapshot = std::move(made);
    snapshot_ = snapshot;
  }
  return std::make_shared<ComposedPart>(std::move(snapshot), page);
}

void ComposedCache::adopt(std::span<const std::shared_ptr<CachePart>> pages, int64_t length) {
  snapshot_.reset();
  for (size_t i = 0; i < layers_.size(); ++i) {
    layers_[i]->restore(joined_rows(pages, i, length), length);
  }
}

}  // namespace quince
