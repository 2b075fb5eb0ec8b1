#include "nn/native_pages.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "kernels/kv_rows.h"

namespace quince {

namespace {

constexpr bool has(uint64_t pieces, size_t kind) {
  return (pieces >> kind & 1) != 0;
}

std::string_view type_name(kernels::KvType type) {
  switch (type) {
    case kernels::KvType::f32:
      return "f32";
    case kernels::KvType::f16:
      return "f16";
    case kernels::KvType::bf16:
      return "bf16";
    case kernels::KvType::q8:
      return "q8";
    case kernels::KvType::q4:
      return "q4";
  }
  return "";
}

// f(offset in a slab's block, offset in packed bytes, bytes)
template <typename F>
void each_part(const kernels::KvLayout& layout, const F& f) {
  size_t packed = 0;
  for (int layer = 0; layer < layout.layers; ++layer) {
    for (int head = 0; head < layout.kv_heads; ++head) {
      f(layout.key_offset(layer, head), packed);
      packed += layout.part_bytes();
    }
  }
}

}  // namespace

bool NativePart::is_whole() const {
  return std::all_of(
      blocks_.begin(), blocks_.end(), [](const Block& b) { return b.page != nullptr; });
}

void NativePart::thin() {
  for (Block& block : blocks_) {
    if (block.windowed) {
      block.page.reset();
    }
  }
}

uint64_t NativePart::pieces() const {
  uint64_t pieces = 0;
  for (size_t k = 0; k < blocks_.size(); ++k) {
    pieces |= uint64_t{blocks_[k].page ? 1u : 0u} << k;
  }
  return pieces;
}

NativePageCodec::NativePageCodec(
    const LayerKinds& kinds,
    std::vector<std::shared_ptr<kernels::KvPool>> pools,
    std::vector<kernels::KvSpan> spans)
    : kind_(kinds.kind), index_(kinds.index), pools_(std::move(pools)), spans_(std::move(spans)) {
  const kernels::KvLayout& first = pools_.front()->layout();
  format_ = fmt::format(
      "native 1: keys {}, values {}, {} heads of {}",
      type_name(first.key_type),
      type_name(first.value_type),
      first.kv_heads,
      first.head_dim);
  for (size_t k = 0; k < pools_.size(); ++k) {
    format_ += fmt::format(
        "; {} layers, window {}, keep {}",
        pools_[k]->layout().layers,
        spans_[k].window,
        spans_[k].keep);
  }
}

PageShape NativePageCodec::shape() const {
  const kernels::KvLayout& layout = pools_.front()->layout();
  PageShape shape;
  shape.kv_heads = layout.kv_heads;
  shape.head_dim = layout.head_dim;
  const auto is = [&](kernels::KvType type) {
    return layout.key_type == type && layout.value_type == type;
  };
  // Codes stand for numbers that f16 holds to more places than they have.
  shape.type = is(kernels::KvType::f32)    ? TensorType::f32
               : is(kernels::KvType::bf16) ? TensorType::bf16
                                           : TensorType::f16;
  for (const int kind : kind_) {
    const kernels::KvSpan& span = spans_[static_cast<size_t>(kind)];
    shape.layers.push_back({uint64_t{1} << kind, span.window, span.keep});
  }
  return shape;
}

NativePageCodec::Place NativePageCodec::place_of(uint64_t pieces, size_t layer) const {
  const auto kind = static_cast<size_t>(kind_[layer]);
  const uint64_t before = pieces & ((uint64_t{1} << kind) - 1);
  Place place{bytes(before), index_[layer], pools_[kind]->layout()};
  place.layout.slab_blocks = 1;
  return place;
}

void NativePageCodec::read_rows(
    uint64_t pieces,
    std::span<const std::byte> bytes,
    size_t layer,
    float* keys,
    float* values) const {
  const Place place = place_of(pieces, layer);
  const int64_t head_size = int64_t{kCachePage} * place.layout.head_dim;
  for (int head = 0; head < place.layout.kv_heads; ++head) {
    kernels::read_block(
        place.layout,
        bytes.data() + place.offset,
        place.index,
        head,
        keys + head * head_size,
        values + head * head_size);
  }
}

void NativePageCodec::write_rows(
    uint64_t pieces,
    std::span<std::byte> bytes,
    size_t layer,
    const float* keys,
    const float* values) const {
  const Place place = place_of(pieces, layer);
  const int64_t head_size = int64_t{kCachePage} * place.layout.head_dim;
  for (int head = 0; head < place.layout.kv_heads; ++head) {
    kernels::write_block(
        place.layout,
        bytes.data() + place.offset,
        place.index,
        head,
        keys + head * head_size,
        values + head * head_size);
  }
}

size_t NativePageCodec::bytes(uint64_t pieces) const {
  size_t bytes = 0;
  for (size_t k = 0; k < pools_.size(); ++k) {
    bytes += has(pieces, k) ? pools_[k]->layout().block_bytes() : 0;
  }
  return bytes;
}

uint64_t NativePageCodec::pieces(const CachePart& part) const {
  return static_cast<const NativePart&>(part).pieces();
}

PageImage NativePageCodec::image(CachePart& part) const {
  const auto& native = static_cast<const NativePart&>(part);
  std::vector<std::pair<kernels::KvPage, kernels::KvLayout>> blocks;
  for (size_t k = 0; k < pools_.size(); ++k) {
    if (native.block(k)) {
      blocks.emplace_back(native.block(k), pools_[k]->layout());
    }
  }
  const uint64_t pieces = native.pieces();
  const auto copy = [blocks = std::move(blocks)](std::span<std::byte> out) {
    std::byte* to = out.data();
    for (const auto& [block, layout] : blocks) {
      each_part(
          layout, [&, from = block.get(), bytes = layout.part_bytes()](size_t at, size_t packed) {
            std::memcpy(to + packed, from + at, bytes);
          });
      to += layout.block_bytes();
    }
  };
  return {pieces, bytes(pieces), copy};
}

std::shared_ptr<CachePart> NativePageCodec::load(
    int64_t /*place*/,
    uint64_t pieces,
    std::span<const std::byte> bytes,
    const CachePart* before) const {
  std::vector<NativePart::Block> blocks;
  const std::byte* from = bytes.data();
  for (size_t k = 0; k < pools_.size(); ++k) {
    NativePart::Block block{nullptr, spans_[k].window > 0};
    if (has(pieces, k)) {
      const auto* neighbour =
          before ? static_cast<const NativePart*>(before)->block(k).get() : nullptr;
      block.page = pools_[k]->take(neighbour, false);
      const kernels::KvLayout& layout = pools_[k]->layout();
      each_part(layout, [&, to = block.page.get()](size_t at, size_t packed) {
        std::memcpy(to + at, from + packed, layout.part_bytes());
      });
      from += layout.block_bytes();
    }
    blocks.push_back(std::move(block));
  }
  return std::make_shared<NativePart>(std::move(blocks));
}

}  // namespace quince
