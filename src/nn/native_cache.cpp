#include "nn/native_cache.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "nn/native_pages.h"

namespace quince {

LayerKinds::LayerKinds(const DecoderSpec& spec) {
  for (const LayerSpec& layer : spec.layers) {
    auto found = std::find(windows.begin(), windows.end(), layer.window);
    const auto k = static_cast<size_t>(found - windows.begin());
    if (found == windows.end()) {
      windows.push_back(layer.window);
      layer_count.push_back(0);
    }
    kind.push_back(static_cast<int>(k));
    index.push_back(layer_count[k]++);
  }
}

std::vector<std::shared_ptr<kernels::KvPool>> make_kv_pools(
    const DecoderSpec& spec,
    const LayerKinds& kinds,
    kernels::KvType keys,
    kernels::KvType values) {
  std::vector<std::shared_ptr<kernels::KvPool>> pools;
  for (const int layers : kinds.layer_count) {
    kernels::KvLayout layout;
    layout.layers = layers;
    layout.kv_heads = spec.kv_heads;
    layout.head_dim = spec.head_dim;
    layout.key_type = keys;
    layout.value_type = values;
    layout.fit_slab();
    pools.push_back(std::make_shared<kernels::KvPool>(layout));
  }
  return pools;
}

NativeCache::NativeCache(
    const LayerKinds& kinds,
    const std::vector<std::shared_ptr<kernels::KvPool>>& pools,
    const CacheOptions& options)
    : kinds_(&kinds), pools_(pools) {
  if (options.max_size && (options.keep < 0 || *options.max_size <= options.keep)) {
    throw UserError(
        "a rotating cache of {} tokens is too small: want more than the {} that are always kept",
        *options.max_size,
        options.keep);
  }
  for (size_t k = 0; k < kinds.windows.size(); ++k) {
    kernels::KvSpan span;
    if (kinds.windows[k] > 0) {
      span.window = std::min(kinds.windows[k], options.max_size.value_or(kinds.windows[k]));
    } else if (options.max_size) {
      span.keep = options.keep;
      span.window = *options.max_size - options.keep;
    }
    stores_.emplace_back(pools[k], span);
  }
}

CacheReach NativeCache::reach() const {
  CacheReach reach;
  int64_t window = 0;
  for (const kernels::KvStore& store : stores_) {
    window = std::max(window, store.span().window);
    reach.keep = std::max(reach.keep, store.span().keep);
  }
  if (window > 0) {
    reach.window = window;
  }
  return reach;
}

size_t NativeCache::page_bytes() const {
  size_t bytes = 0;
  for (const kernels::KvStore& store : stores_) {
    bytes += store.layout().block_bytes();
  }
  return bytes;
}

std::shared_ptr<const PageCodec> NativeCache::codec() const {
  return std::make_shared<NativePageCodec>(*kinds_, pools_, spans());
}

std::vector<kernels::KvSpan> NativeCache::spans() const {
  std::vector<kernels::KvSpan> spans;
  for (const kernels::KvStore& store : stores_) {
    spans.push_back(store.span());
  }
  return spans;
}

std::shared_ptr<CachePart> NativeCache::share(int64_t page) {
  std::vector<NativePart::Block> blocks;
  for (kernels::KvStore& store : stores_) {
    blocks.push_back({store.share(page * kCachePage), store.span().window > 0});
  }
  return std::make_shared<NativePart>(std::move(blocks));
}

void NativeCache::adopt(std::span<const std::shared_ptr<CachePart>> pages, int64_t length) {
  for (size_t k = 0; k < stores_.size(); ++k) {
    std::vector<std::pair<int64_t, kernels::KvPage>> blocks;
    for (size_t i = 0; i < pages.size(); ++i) {
      const int64_t start = static_cast<int64_t>(i) * kCachePage;
      if (stores_[k].span().visible_from(start, length, length)) {
        blocks.emplace_back(start, static_cast<const NativePart&>(*pages[i]).block(k));
        if (!blocks.back().second) {
          throw std::logic_error("[NativeCache] a page within reach is not whole");
        }
      }
    }
    stores_[k].adopt(blocks, length);
  }
}

int64_t NativeCache::length() const {
  return stores_.empty() ? 0 : stores_.front().length();
}

size_t NativeCache::bytes() const {
  size_t total = 0;
  for (const kernels::KvStore& store : stores_) {
    total += store.bytes();
  }
  return total;
}

bool NativeCache::trim(int64_t n) {
  const bool possible = std::all_of(
      stores_.begin(), stores_.end(), [n](const auto& store) { return store.can_trim(n); });
  if (possible) {
    for (kernels::KvStore& store : stores_) {
      store.trim(n);
    }
  }
  return possible;
}

void NativeCache::clear() {
  for (kernels::KvStore& store : stores_) {
    store.clear();
  }
  last_step.reset();  // it writes to memory that is not ours any more; it may even have failed
}

std::vector<std::shared_ptr<const kernels::KvBlocks>> NativeCache::append(int64_t n) {
  std::vector<std::shared_ptr<const kernels::KvBlocks>> lists;
  try {
    for (kernels::KvStore& store : stores_) {
      lists.push_back(store.append(n));
    }
  } catch (...) {  // out of memory: the stores no longer agree on a length
    clear();
    throw;
  }
  return lists;
}

}  // namespace quince
