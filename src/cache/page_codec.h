// Pages of caches as bytes, so that they can be kept in files. Each kind of cache has its own; what
// is written under one format() is read under no other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/cache.h"
#include "weights/tensor.h"

namespace quince {

// A page that can be written down: bit i of pieces says that the layers of kind i are in it.
struct PageImage {
  uint64_t pieces = 0;
  size_t bytes = 0;
  std::function<void(std::span<std::byte>)> copy;  // any thread; holds the page until it goes
};

// What is in a page, layer by layer.
struct PageShape {
  struct Layer {
    uint64_t piece = 0;  // the bit of its kind
    int64_t window = 0;  // 0: sees all positions; else the first `keep` and the last `window`
    int64_t keep = 0;
  };
  std::vector<Layer> layers;
  int kv_heads = 0;
  int head_dim = 0;
  TensorType type = TensorType::f32;  // that holds its numbers best
  bool rings = true;                  // a cache can begin with less than all positions everywhere
};

class PageCodec {
 public:
  virtual ~PageCodec() = default;
  virtual PageShape shape() const = 0;
  // Keys and values of a layer, [kv_heads][kCachePage][head_dim], out of or into a page's bytes,
  // whose pieces have the layer. Any thread.
  virtual void read_rows(
      uint64_t pieces,
      std::span<const std::byte> bytes,
      size_t layer,
      float* keys,
      float* values) const = 0;
  virtual void write_rows(
      uint64_t pieces,
      std::span<std::byte> bytes,
      size_t layer,
      const float* keys,
      const float* values) const = 0;
  // All that decides what the bytes mean: number formats, layers, heads, windows. Not the model.
  virtual const std::string& format() const = 0;
  virtual uint64_t whole() const = 0;  // pieces of a page that is whole
  virtual size_t bytes(uint64_t pieces) const = 0;
  virtual uint64_t pieces(const CachePart& part) const = 0;
  // Engine thread, when what is in the page has been computed.
  virtual PageImage image(CachePart& part) const = 0;
  // Any thread; bytes are copied. before: the page before, or nothing: a good neighbour in memory.
  virtual std::shared_ptr<CachePart> load(
      int64_t place,
      uint64_t pieces,
      std::span<const std::byte> bytes,
      const CachePart* before) const = 0;
};

}  // namespace quince
