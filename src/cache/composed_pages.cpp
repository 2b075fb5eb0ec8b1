#include "cache/composed_pages.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <mlx/allocator.h>
#include <mlx/ops.h>
#include <mlx/transforms.h>

namespace quince {

namespace mx = mlx::core;

namespace {

constexpr bool has(uint64_t pieces, size_t kind) {
  return (pieces >> kind & 1) != 0;
}

// The rows of a page, as bytes that follow each other; behind the last row there may be fewer.
mx::array page_rows(const mx::array& rows, int64_t first) {
  const int64_t last = std::min<int64_t>(first + kCachePage, rows.shape(2));
  return mx::contiguous(rows_of(rows, first, last));
}

// To [heads, kCachePage, width]; rows that are not there are zero. Returns the bytes of that.
size_t copy_rows(const mx::array& rows, std::byte* out) {
  const auto heads = static_cast<size_t>(rows.shape(1));
  const size_t row = static_cast<size_t>(rows.shape(3)) * rows.itemsize();
  const size_t bytes = static_cast<size_t>(rows.shape(2)) * row;
  const auto* from = rows.data<std::byte>();
  for (size_t head = 0; head < heads; ++head) {
    std::memcpy(out + head * kCachePage * row, from + head * bytes, bytes);
    std::memset(out + head * kCachePage * row + bytes, 0, kCachePage * row - bytes);
  }
  return heads * kCachePage * row;
}

// All planes of a layer, whose bytes these are.
KvPlanes planes_from(const ComposedShape& shape, const std::byte* bytes) {
  KvPlanes planes;
  for (const KvPlane& plane : shape.planes()) {
    const size_t size = shape.plane_bytes(plane);
    mx::allocator::Data data = mx::allocator::malloc(size);
    std::memcpy(data.buffer().raw_ptr(), bytes, size);
    planes.emplace_back(
        std::move(data), mx::Shape{1, shape.kv_heads, kCachePage, plane.width}, plane.type);
    bytes += size;
  }
  return planes;
}

}  // namespace

std::vector<size_t> ComposedShape::kinds() const {
  std::vector<int> known;
  std::vector<size_t> kinds;
  for (const int window : windows) {
    const auto found = std::find(known.begin(), known.end(), window);
    kinds.push_back(static_cast<size_t>(found - known.begin()));
    if (found == known.end()) {
      known.push_back(window);
    }
  }
  return kinds;
}

std::vector<KvPlane> ComposedShape::planes() const {
  std::vector<KvPlane> planes = keys.planes();
  const std::vector<KvPlane> more = values.planes();
  planes.insert(planes.end(), more.begin(), more.end());
  return planes;
}

size_t ComposedShape::plane_bytes(const KvPlane& plane) const {
  return static_cast<size_t>(kv_heads) * kCachePage * plane.row_bytes();
}

size_t ComposedShape::key_bytes() const {
  return static_cast<size_t>(kv_heads) * kCachePage * keys.row_bytes();
}

size_t ComposedShape::layer_bytes() const {
  return key_bytes() + static_cast<size_t>(kv_heads) * kCachePage * values.row_bytes();
}

bool ComposedPart::has_layer(size_t layer) const {
  return snapshot_ ? snapshot_->layers[layer].first <= start_
                   : has(pieces_, shape_->kinds()[layer]);
}

bool ComposedPart::is_whole() const {
  const size_t layers = snapshot_ ? snapshot_->layers.size() : shape_->windows.size();
  for (size_t i = 0; i < layers; ++i) {
    if (!has_layer(i)) {
      return false;
    }
  }
  return true;
}

const std::shared_ptr<const CacheSnapshot>& ComposedPart::snapshot() const {
  if (snapshot_) {
    return snapshot_;
  }
  auto made = std::make_shared<CacheSnapshot>();
  made->length = start_ + kCachePage;
  const std::vector<size_t> kinds = shape_->kinds();
  std::vector<std::optional<KvRows>> layers(kinds.size());
  const std::byte* at = bytes_.data();
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    for (size_t i = 0; i < kinds.size(); ++i) {
      if (kinds[i] == kind && has(pieces_, kind)) {
        layers[i] = KvRows{planes_from(*shape_, at), start_};
        at += shape_->layer_bytes();
      }
    }
  }
  KvRows nothing{{}, start_ + kCachePage};  // what is not there begins behind the page
  for (const KvPlane& plane : shape_->planes()) {
    nothing.planes.push_back(mx::zeros({1, shape_->kv_heads, 0, plane.width}, plane.type));
  }
  for (const std::optional<KvRows>& layer : layers) {
    made->layers.push_back(layer.value_or(nothing));
  }
  snapshot_ = std::move(made);
  bytes_ = {};
  return snapshot_;
}

ComposedPageCodec::ComposedPageCodec(ComposedShape shape)
    : shape_(std::move(shape)), kinds_(shape_.kinds()) {
  format_ = fmt::format(
      "composed 2: keys {}, values {}, {} heads of {}{}; windows",
      shape_.keys.name(),
      shape_.values.name(),
      shape_.kv_heads,
      shape_.head_dim,
      shape_.max_size == 0
          ? ""
          : fmt::format(", at most {} with the first {}", shape_.max_size, shape_.keep));
  for (size_t i = 0; i < kinds_.size(); ++i) {
    format_ += fmt::format(" {}", shape_.windows[i]);
    whole_ |= uint64_t{1} << kinds_[i];
  }
}

size_t ComposedPageCodec::bytes(uint64_t pieces) const {
  const auto count =
      std::count_if(kinds_.begin(), kinds_.end(), [&](size_t kind) { return has(pieces, kind); });
  return static_cast<size_t>(count) * shape_.layer_bytes();
}

PageShape ComposedPageCodec::shape() const {
  PageShape shape;
  shape.kv_heads = shape_.kv_heads;
  shape.head_dim = shape_.head_dim;
  const mx::Dtype type = shape_.keys.type();
  shape.type = type != shape_.values.type() ? TensorType::f32
               : type == mx::float16        ? TensorType::f16
               : type == mx::bfloat16       ? TensorType::bf16
                                            : TensorType::f32;
  shape.rings = shape_.max_size == 0;
  for (size_t i = 0; i < kinds_.size(); ++i) {
    const int64_t window = shape_.windows[i];
    const int64_t most = shape_.max_size;
    PageShape::Layer layer{uint64_t{1} << kinds_[i], window, 0};
    if (window > 0 && most > 0) {
      layer.window = std::min(window, most);
    } else if (most > 0) {
      layer.window = most - shape_.keep;
      layer.keep = shape_.keep;
    }
    shape.layers.push_back(layer);
  }
  return shape;
}

// Kind by kind, and in a kind layer by layer.
size_t ComposedPageCodec::offset_of(uint64_t pieces, size_t layer) const {
  size_t before = 0;
  for (size_t i = 0; i < kinds_.size(); ++i) {
    const bool earlier = kinds_[i] < kinds_[layer] || (kinds_[i] == kinds_[layer] && i < layer);
    before += earlier && has(pieces, kinds_[i]) ? 1 : 0;
  }
  return before * shape_.layer_bytes();
}

void ComposedPageCodec::read_rows(
    uint64_t pieces,
    std::span<const std::byte> bytes,
    size_t layer,
    float* keys,
    float* values) const {
  const std::byte* from = bytes.data() + offset_of(pieces, layer);
  const size_t rows = static_cast<size_t>(shape_.kv_heads) * kCachePage;
  shape_.keys.decode(from, rows, keys);
  shape_.values.decode(from + shape_.key_bytes(), rows, values);
}

void ComposedPageCodec::write_rows(
    uint64_t pieces,
    std::span<std::byte> bytes,
    size_t layer,
    const float* keys,
    const float* values) const {
  std::byte* to = bytes.data() + offset_of(pieces, layer);
  const size_t rows = static_cast<size_t>(shape_.kv_heads) * kCachePage;
  shape_.keys.encode(keys, rows, to);
  shape_.values.encode(values, rows, to + shape_.key_bytes());
}

uint64_t ComposedPageCodec::pieces(const CachePart& part) const {
  const auto& composed = static_cast<const ComposedPart&>(part);
  uint64_t pieces = whole_;
  for (size_t i = 0; i < kinds_.size(); ++i) {
    if (!composed.has_layer(i)) {
      pieces &= ~(uint64_t{1} << kinds_[i]);
    }
  }
  return pieces;
}

PageImage ComposedPageCodec::image(CachePart& part) const {
  const auto& composed = static_cast<const ComposedPart&>(part);
  const uint64_t what = pieces(part);
  std::vector<mx::array> rows;
  const CacheSnapshot& snapshot = *composed.snapshot();
  const size_t kinds = kinds_.empty() ? 0 : *std::ranges::max_element(kinds_) + 1;
  for (size_t kind = 0; kind < kinds; ++kind) {
    for (size_t i = 0; i < kinds_.size(); ++i) {
      if (kinds_[i] == kind && has(what, kind)) {
        const KvRows& layer = snapshot.layers[i];
        for (const mx::array& plane : layer.planes) {
          rows.push_back(page_rows(plane, composed.start() - layer.first));
        }
      }
    }
  }
  mx::eval(rows);
  auto bytes = std::make_shared<std::vector<std::byte>>(this->bytes(what));
  std::byte* to = bytes->data();
  for (const mx::array& x : rows) {
    to += copy_rows(x, to);
  }
  return {what, bytes->size(), [bytes](std::span<std::byte> out) {
            std::copy(bytes->begin(), bytes->end(), out.begin());
          }};
}

std::shared_ptr<CachePart> ComposedPageCodec::load(
    int64_t place,
    uint64_t pieces,
    std::span<const std::byte> bytes,
    const CachePart* /*before*/) const {
  return std::make_shared<ComposedPart>(
      shape_, place, pieces, std::vector<std::byte>(bytes.begin(), bytes.end()));
}

}  // namespace quince
