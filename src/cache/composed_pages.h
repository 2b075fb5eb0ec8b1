// Pages of composed caches: views of all that a cache held when they were shared, or bytes that
// were read from a file and become arrays when they are first used. As bytes: kind by kind (layers
// with one window), of each layer the planes of the keys and then those of the values, of each
// plane [kv_heads, kCachePage, width]. Arrays are touched on the engine thread only.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/kv_coding.h"
#include "cache/kv_layer.h"
#include "cache/page_codec.h"

namespace quince {

struct CacheSnapshot {
  std::vector<KvRows> layers;
  int64_t length = 0;
};

// What the layers of a composed cache have in common, and in what they differ.
struct ComposedShape {
  std::vector<int> windows;  // of each layer; 0: none
  int max_size = 0;          // rotating: most tokens; 0: all
  int keep = 0;
  int kv_heads = 0;
  int head_dim = 0;
  KvCoding keys;
  KvCoding values;
  // Of each layer which kind it is, by window.
  std::vector<size_t> kinds() const;
  std::vector<KvPlane> planes() const;  // of the keys, then of the values
  // Of a layer in a page.
  size_t plane_bytes(const KvPlane& plane) const;
  size_t key_bytes() const;
  size_t layer_bytes() const;
};

class ComposedPart : public CachePart {
 public:
  ComposedPart(std::shared_ptr<const CacheSnapshot> snapshot, int64_t page)
      : snapshot_(std::move(snapshot)), start_(page * kCachePage) {}
  // pieces: as in ComposedPageCodec.
  ComposedPart(ComposedShape shape, int64_t page, uint64_t pieces, std::vector<std::byte> bytes)
      : start_(page * kCachePage),
        shape_(std::move(shape)),
        pieces_(pieces),
        bytes_(std::move(bytes)) {}

  bool is_whole() const override;
  void thin() override {}  // what it would give up is one buffer with the rest
  bool has_layer(size_t layer) const;
  int64_t start() const {
    return start_;
  }
  const std::shared_ptr<const CacheSnapshot>& snapshot() const;

 private:
  mutable std::shared_ptr<const CacheSnapshot> snapshot_;
  int64_t start_;
  std::optional<ComposedShape> shape_;  // with bytes
  uint64_t pieces_ = 0;
  mutable std::vector<std::byte> bytes_;
};

class ComposedPageCodec : public PageCodec {
 public:
  explicit ComposedPageCodec(ComposedShape shape);
  const std::string& format() const override {
    return format_;
  }
  uint64_t whole() const override {
    return whole_;
  }
  size_t bytes(uint64_t pieces) const override;
  uint64_t pieces(const CachePart& part) const override;
  PageImage image(CachePart& part) const override;
  std::shared_ptr<CachePart> load(
      int64_t place,
      uint64_t pieces,
      std::span<const std::byte> bytes,
      const CachePart* before) const override;
  PageShape shape() const override;
  void read_rows(
      uint64_t pieces,
      std::span<const std::byte> bytes,
      size_t layer,
      float* keys,
      float* values) const override;
  void write_rows(
      uint64_t pieces,
      std::span<std::byte> bytes,
      size_t layer,
      const float* keys,
      const float* values) const override;

 private:
  size_t offset_of(uint64_t pieces, size_t layer) const;

  ComposedShape shape_;
  std::vector<size_t> kinds_;
  uint64_t whole_ = 0;
  std::string format_;
};

}  // namespace quince
