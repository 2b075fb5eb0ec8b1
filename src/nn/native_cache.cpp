#include "nn/native_cache.h"

#include <algorithm>

#include "base/error.h"

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

NativeCache::NativeCache(
    const DecoderSpec& spec,
    const LayerKinds& kinds,
    const CacheOptions& options,
    kernels::KvType type) {
  if (options.max_size && (options.keep < 0 || *options.max_size <= options.keep)) {
    throw UserError(
        "a rotating cache of {} tokens is too small: want more than the {} that are always kept",
        *options.max_size,
        options.keep);
  }
  for (size_t k = 0; k < kinds.windows.size(); ++k) {
    kernels::KvLayout layout;
    layout.layers = kinds.layer_count[k];
    layout.kv_heads = spec.kv_heads;
    layout.head_dim = spec.head_dim;
    layout.type = type;
    kernels::KvSpan span;
    if (kinds.windows[k] > 0) {
      span.window = std::min(kinds.windows[k], options.max_size.value_or(kinds.windows[k]));
    } else if (options.max_size) {
      span.keep = options.keep;
      span.window = *options.max_size - options.keep;
    }
    stores_.emplace_back(layout, span);
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
