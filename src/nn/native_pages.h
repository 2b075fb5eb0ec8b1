// Pages of native caches: a block of each kind of layers. As bytes the blocks follow each other,
// each as a slab of its own would hold it: layer by layer and head by head, keys and then values.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cache/page_codec.h"
#include "kernels/kv_store.h"
#include "nn/native_cache.h"

namespace quince {

class NativePart : public CachePart {
 public:
  struct Block {
    kernels::KvPage page;  // nothing where a window has passed it
    bool windowed = false;
  };
  explicit NativePart(std::vector<Block> blocks) : blocks_(std::move(blocks)) {}

  bool is_whole() const override;
  void thin() override;
  const kernels::KvPage& block(size_t kind) const {
    return blocks_[kind].page;
  }
  uint64_t pieces() const;

 private:
  std::vector<Block> blocks_;
};

class NativePageCodec : public PageCodec {
 public:
  // pools, spans: of each kind.
  NativePageCodec(
      const LayerKinds& kinds,
      std::vector<std::shared_ptr<kernels::KvPool>> pools,
      std::vector<kernels::KvSpan> spans);

  const std::string& format() const override {
    return format_;
  }
  uint64_t whole() const override {
    return (uint64_t{1} << pools_.size()) - 1;
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
  // Where a layer lies in a page's bytes, and how.
  struct Place {
    size_t offset = 0;
    int index = 0;  // of the layer in its kind
    kernels::KvLayout layout;
  };
  Place place_of(uint64_t pieces, size_t layer) const;

  std::vector<int> kind_;   // of each layer
  std::vector<int> index_;  // of each layer in its kind
  std::vector<std::shared_ptr<kernels::KvPool>> pools_;
  std::vector<kernels::KvSpan> spans_;
  std::string format_;
};

}  // namespace quince
