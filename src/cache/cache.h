// The KV cache of one sequence: one mutable inference timeline over all layers. A model makes it
// and is the only one to look inside; others see lengths. Engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "cache/page.h"
#include "kernels/kv_type.h"

namespace quince {

// Of stored keys or values.
using KvFormat = kernels::KvType;

struct CacheOptions {
  // Rotating: at most this many tokens are kept, the first `keep` of them always. Absent: all.
  std::optional<int> max_size;
  int keep = 4;
  // Absent: the kernels' best (native: f16, or f32 for f32 models; mlx: the activation type).
  std::optional<KvFormat> keys;
  std::optional<KvFormat> values;
  int expected_length = 0;  // hint: tokens that will be appended, to allocate once
};

// A page of a cache, held for others.
class CachePart {
 public:
  virtual ~CachePart() = default;
  // Layers with a window may have forgotten their share of it, or are told to: it then serves only
  // tokens that lie further behind than the reach.
  virtual bool is_whole() const = 0;
  virtual void thin() = 0;
};

class PageCodec;

class Cache {
 public:
  virtual ~Cache() = default;
  // How pages of such caches are written down; nothing when they are not.
  virtual std::shared_ptr<const PageCodec> codec() const {
    return nullptr;
  }
  virtual CacheReach reach() const = 0;
  virtual size_t page_bytes() const = 0;  // of a whole page
  virtual int64_t length() const = 0;     // tokens appended so far = position of the next one
  virtual size_t bytes() const = 0;       // allocated
  // Forgets the last n tokens; false when a rotating cache no longer can (nothing is changed then).
  virtual bool trim(int64_t n) = 0;
  // Whether the next n tokens, a few, could be trimmed once they are appended.
  virtual bool can_undo(int64_t n) const = 0;
  virtual void clear() = 0;

  // A page that has been appended to, full or not; a later append never changes what is in it.
  // Nothing when the cache cannot share it.
  virtual std::shared_ptr<CachePart> share(int64_t page) = 0;
  // Whether sharing costs nothing while the cache goes on, or only once it is done with.
  virtual bool shares_at_once() const = 0;
  // A cache that is empty takes over pages 0, 1, ..., as if `length` tokens had been appended.
  // Those within reach of position `length` must be whole.
  virtual void adopt(std::span<const std::shared_ptr<CachePart>> pages, int64_t length) = 0;
};

}  // namespace quince
