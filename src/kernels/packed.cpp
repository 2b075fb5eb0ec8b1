#include "kernels/packed.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "kernels/pack_rows.h"
#include "kernels/pack_unpack.h"
#include "kernels/packed_layout.h"
#include "weights/float_formats.h"

// Equal to the bit on processors with fused multiply-add too.
#pragma clang fp contract(off)

namespace quince::kernels {

namespace {

int dense_column_step(PackedKind kind) {
  switch (kind) {
    case PackedKind::bf16:
      return kChunk;  // a tile row's worth
    case PackedKind::f16:
      return 2;  // one vector
    default:
      return 1;
  }
}

// Which source and which of its rows a row of the stacked matrix is.
struct StackedRows {
  std::span<const PackSource> sources;
  std::vector<int64_t> ends;  // row after the last one of each source

  std::pair<const PackSource*, int64_t> find(int64_t row) const {
    const size_t i =
        static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), row) - ends.begin());
    return {&sources[i], row - (i == 0 ? 0 : ends[i - 1])};
  }
};

// Packs one block; scratch lives as long as a thread's share of the work.
class BlockPacker {
 public:
  BlockPacker(const PackPlan& plan, PackedMatrix::Layout& layout, const StackedRows& rows)
      : plan_(plan), layout_(layout), rows_(rows) {}

  void pack(int64_t block) {
    out_ = layout_.memory.data() + static_cast<size_t>(block) * layout_.block_bytes;
    lanes_ = layout_.block_rows(block);
    for (int lane = 0; lane < lanes_; ++lane) {
      std::tie(source_[lane], row_[lane]) = rows_.find(block * kBlockRows + lane);
    }
    switch (plan_.route) {
      case PackRoute::keep_codes:
        return keep_codes();
      case PackRoute::mlx_triple:
        return mlx_triple();
      case PackRoute::decode_int8:
        return decode_int8();
      case PackRoute::dense:
        return dense();
      case PackRoute::decode_f32:
      case PackRoute::decode_bf16:
        return decode_dense();
    }
  }

 private:
  const std::byte* bytes(int lane) const {
    return source_[lane]->weight.row(row_[lane]).data();
  }

  void codes(ChunkCodes get) {
    const std::byte* from[kBlockRows];
    for (int lane = 0; lane < lanes_; ++lane) {
      from[lane] = bytes(lane);
    }
    uint8_t row_codes[kChunk];
    for (int64_t chunk = 0; chunk < layout_.chunks(); ++chunk) {
      for (int lane = 0; lane < lanes_; ++lane) {
        get(from[lane], chunk, row_codes);
        put_codes(lane, row_codes);
      }
      put_chunk(chunk);
    }
  }

  void put_codes(int lane, const uint8_t* row_codes) {
    for (int step = 0; step < kSteps; ++step) {
      std::memcpy(chunk_ + step * kVector + 4 * lane, row_codes + 4 * step, 4);
    }
  }

  void put_chunk(int64_t chunk) {
    pack_chunk(
        layout_.format.bits, chunk_, out_ + static_cast<size_t>(chunk) * layout_.chunk_bytes());
  }

  void keep_codes() {
    const TensorType type = source_[0]->weight.type;
    codes(chunk_codes(type));
    const UnitScales put = unit_scales(type);
    const size_t unit_bytes = scale_unit_bytes(plan_.scales, plan_.format.biased);
    const int64_t units = layout_.columns / info(type).block;
    for (int lane = 0; lane < lanes_; ++lane) {
      const std::byte* from = bytes(lane);
      std::byte* to = out_ + layout_.scale_offset;
      for (int64_t unit = 0; unit < units; ++unit, to += unit_bytes) {
        put(from, unit, lane, to);
      }
    }
  }

  void mlx_triple() {
    codes(mlx_chunk_codes(plan_.format.bits));
    const size_t element = plan_.scales == ScalePlan::direct_f32 ? 4 : 2;
    const int64_t groups = layout_.columns / plan_.format.group;
    for (int lane = 0; lane < lanes_; ++lane) {
      put_mlx(*source_[lane]->scales, lane, element, groups, 0);
      put_mlx(*source_[lane]->biases, lane, element, groups, kBlockRows);
    }
  }

  // One row of scales or biases; converted when the triple mixes types.
  void put_mlx(const TensorView& from, int lane, size_t element, int64_t groups, int place) {
    std::byte* to = out_ + layout_.scale_offset + (place + lane) * element;
    const bool as_is = static_cast<size_t>(info(from.type).bytes) == element;
    const std::byte* in = nullptr;
    if (as_is) {
      in = from.row(row_[lane]).data();
    } else {
      floats_.resize(groups);
      decode_rows(from, row_[lane], 1, floats_.data());
      in = reinterpret_cast<const std::byte*>(floats_.data());
    }
    for (int64_t g = 0; g < groups; ++g) {
      std::memcpy(
          to + static_cast<size_t>(g) * 2 * kBlockRows * element, in + g * element, element);
    }
  }

  void decode_int8() {
    decode();
    const bool exact_power = source_[0]->weight.type == TensorType::mxfp4;
    uint8_t row_codes[kChunk];
    for (int64_t chunk = 0; chunk < layout_.chunks(); ++chunk) {
      std::byte* scales = out_ + layout_.scale_offset + static_cast<size_t>(chunk) * kVector;
      for (int lane = 0; lane < lanes_; ++lane) {
        const float scale = quantize_chunk(
            floats_.data() + lane * layout_.columns + chunk * kChunk, exact_power, row_codes);
        std::memcpy(scales + 4 * lane, &scale, 4);
        put_codes(lane, row_codes);
      }
      put_chunk(chunk);
    }
  }

  // Rows of this block as f32, row after row.
  void decode() {
    floats_.resize(static_cast<size_t>(lanes_ * layout_.columns));
    for (int lane = 0; lane < lanes_; ++lane) {
      decode_rows(source_[lane]->weight, row_[lane], 1, floats_.data() + lane * layout_.columns);
    }
  }

  void decode_dense() {
    decode();
    for (int lane = 0; lane < lanes_; ++lane) {
      const float* row = floats_.data() + lane * layout_.columns;
      if (layout_.format.kind == PackedKind::f32) {
        put_dense<uint32_t>(lane, reinterpret_cast<const std::byte*>(row));
      } else {
        halves_.resize(layout_.columns);
        for (int64_t k = 0; k < layout_.columns; ++k) {
          halves_[k] = static_cast<uint16_t>(std::bit_cast<uint32_t>(row[k]) >> 16);
        }
        put_pairs(lane, reinterpret_cast<const std::byte*>(halves_.data()));
      }
    }
  }

  void dense() {
    for (int lane = 0; lane < lanes_; ++lane) {
      switch (layout_.format.kind) {
        case PackedKind::f32:
          put_dense<uint32_t>(lane, bytes(lane));
          break;
        case PackedKind::f16:
          put_dense<uint16_t>(lane, bytes(lane));
          break;
        default:
          put_pairs(lane, bytes(lane));
      }
    }
  }

  template <typename Element>
  void put_dense(int lane, const std::byte* row) {
    std::byte* to = out_ + sizeof(Element) * lane;
    for (int64_t k = 0; k < layout_.columns; ++k) {
      std::memcpy(
          to + k * kBlockRows * sizeof(Element), row + k * sizeof(Element), sizeof(Element));
    }
  }

  void put_pairs(int lane, const std::byte* row) {
    std::byte* to = out_ + 4 * lane;
    for (int64_t k = 0; k + 1 < layout_.columns; k += 2) {
      std::memcpy(to + k / 2 * kVector, row + 2 * k, 4);
    }
    if (layout_.columns % 2 != 0) {
      const int64_t k = layout_.columns - 1;
      std::memcpy(to + k / 2 * kVector, row + 2 * k, 2);
    }
  }

  const PackPlan& plan_;
  PackedMatrix::Layout& layout_;
  const StackedRows& rows_;
  std::byte* out_ = nullptr;
  int lanes_ = 0;
  const PackSource* source_[kBlockRows];
  int64_t row_[kBlockRows];
  // Codes of rows beyond the last stay what an earlier block left: never read as rows, and no
  // kernel lets one row's value reach another's.
  alignas(kVector) uint8_t chunk_[kSteps * kVector] = {};
  std::vector<float> floats_;
  std::vector<uint16_t> halves_;
};

// The mapped pages of these blocks are not needed any more.
void drop_source(const PackSource& source, int64_t first, int64_t last) {
  const TensorView& w = source.weight;
  if (w.file && w.row_order.empty() && first < last) {
    const size_t row_bytes = w.row(0).size();
    w.file->drop(w.bytes.subspan(
        static_cast<size_t>(first) * row_bytes, static_cast<size_t>(last - first) * row_bytes));
  }
}

// Rows [first, last) of the stack have been read.
void drop_rows(const StackedRows& rows, int64_t first, int64_t last) {
  int64_t begin = 0;
  for (size_t i = 0; i < rows.sources.size(); ++i) {
    const int64_t end = rows.ends[i];
    drop_source(rows.sources[i], std::max(first, begin) - begin, std::min(last, end) - begin);
    begin = end;
  }
}

constexpr size_t kTaskBytes = size_t{256} << 10;  // packed bytes a thread takes at a time

void pack_all(
    const PackPlan& plan, const StackedRows& rows, PackedMatrix::Layout& layout, ThreadPool& pool) {
  const int64_t step = std::max<int64_t>(1, static_cast<int64_t>(kTaskBytes / layout.block_bytes));
  pool.run([&](Team& team) {
    BlockPacker packer(plan, layout, rows);
    for (int64_t task = team.next(); task * step < layout.blocks; task = team.next()) {
      const int64_t last = std::min(layout.blocks, (task + 1) * step);
      for (int64_t block = task * step; block < last; ++block) {
        packer.pack(block);
      }
      drop_rows(rows, task * step * kBlockRows, std::min(layout.rows, last * kBlockRows));
    }
  });
}

}  // namespace

size_t scale_unit_bytes(ScalePlan plan, bool biased) {
  const size_t count = biased ? 2 : 1;
  switch (plan) {
    case ScalePlan::none:
      return 0;
    case ScalePlan::direct_f16:
    case ScalePlan::direct_bf16:
      return count * kBlockRows * 2;
    case ScalePlan::direct_f32:
      return count * kBlockRows * 4;
    case ScalePlan::k_6_6:
      return 256;
    case ScalePlan::k_8:
      return 288;
    case ScalePlan::k_6:
      return 224;
    case ScalePlan::k_4_4:
      return 320;
  }
  return 0;
}

void place(PackedMatrix::Layout& w) {
  w.blocks = (w.rows + kBlockRows - 1) / kBlockRows;
  size_t bytes = 0;
  if (w.quantized()) {
    w.scale_offset = static_cast<size_t>(w.chunks()) * w.chunk_bytes();
    const bool two_level = w.format.kind == PackedKind::two_level;
    const int64_t units = w.columns / (two_level ? kSuperBlock : w.format.group);
    bytes = w.scale_offset + static_cast<size_t>(units) * scale_unit_bytes(w.plan, w.format.biased);
  } else {
    const int64_t step = dense_column_step(w.format.kind);
    const int64_t columns = (w.columns + step - 1) / step * step;
    bytes = static_cast<size_t>(columns) * kBlockRows * (w.format.kind == PackedKind::f32 ? 4 : 2);
    w.scale_offset = bytes;
  }
  w.block_bytes = (bytes + kVector - 1) / kVector * kVector;
}

std::string PackedFormat::describe() const {
  switch (kind) {
    case PackedKind::f32:
      return "f32";
    case PackedKind::f16:
      return "f16";
    case PackedKind::bf16:
      return "bf16";
    case PackedKind::direct:
      return fmt::format("{}-bit g{}{}", bits, group, biased ? " affine" : "");
    case PackedKind::two_level:
      return fmt::format("{}-bit g{} two-level{}", bits, group, biased ? " affine" : "");
  }
  return "";
}

PackedMatrix::PackedMatrix() : layout_(std::make_unique<Layout>()) {}
PackedMatrix::PackedMatrix(PackedMatrix&&) noexcept = default;
PackedMatrix& PackedMatrix::operator=(PackedMatrix&&) noexcept = default;
PackedMatrix::~PackedMatrix() = default;

PackedFormat PackedMatrix::packed_format(const PackSource& source) {
  return plan_of(source).format;
}

PackedMatrix PackedMatrix::pack(const PackSource& source, ThreadPool& pool, PackArena* arena) {
  return std::move(*pack_stacked({&source, 1}, pool, arena));
}

std::optional<PackedMatrix> PackedMatrix::pack_stacked(
    std::span<const PackSource> sources, ThreadPool& pool, PackArena* arena) {
  if (sources.empty()) {
    return std::nullopt;
  }
  const PackPlan plan = plan_of(sources[0]);
  StackedRows rows{sources, {}};
  int64_t count = 0;
  for (const PackSource& source : sources) {
    PackPlan other = plan_of(source);
    count += std::exchange(other.rows, plan.rows);
    if (other != plan || source.weight.type != sources[0].weight.type) {
      return std::nullopt;
    }
    rows.ends.push_back(count);
  }
  PackedMatrix matrix;
  Layout& layout = *matrix.layout_;
  layout.rows = count;
  layout.columns = plan.columns;
  layout.format = plan.format;
  layout.plan = plan.scales;
  layout.zero = plan.zero;
  place(layout);
  if (layout.blocks > 0 && layout.block_bytes > 0) {
    PackArena own;
    layout.memory =
        (arena ? *arena : own).allocate(static_cast<size_t>(layout.blocks) * layout.block_bytes);
    pack_all(plan, rows, layout, pool);
  }
  return matrix;
}

int64_t PackedMatrix::rows() const {
  return layout_->rows;
}

int64_t PackedMatrix::columns() const {
  return layout_->columns;
}

const PackedFormat& PackedMatrix::format() const {
  return layout_->format;
}

size_t PackedMatrix::bytes() const {
  return layout_->memory.size();
}

namespace {

void unpack_dense_row(const PackedMatrix::Layout& w, const std::byte* block, int lane, float* out) {
  for (int64_t k = 0; k < w.columns; ++k) {
    if (w.format.kind == PackedKind::f32) {
      std::memcpy(out + k, block + (k * kBlockRows + lane) * 4, 4);
      continue;
    }
    const bool pairs = w.format.kind == PackedKind::bf16;
    const int64_t element =
        pairs ? k / 2 * 2 * kBlockRows + 2 * lane + k % 2 : k * kBlockRows + lane;
    uint16_t bits;
    std::memcpy(&bits, block + element * 2, 2);
    out[k] = pairs ? bf16_to_f32(bits) : f16_to_f32(bits);
  }
}

}  // namespace

void PackedMatrix::unpack_row(int64_t row, float* out) const {
  const Layout& w = *layout_;
  const std::byte* block = w.block(row / kBlockRows);
  const int lane = static_cast<int>(row % kBlockRows);
  if (!w.quantized()) {
    return unpack_dense_row(w, block, lane, out);
  }
  const int halves = scales_per_chunk(w);
  uint8_t codes[kChunk];
  float scale[2 * kBlockRows];
  float bias[2 * kBlockRows];
  for (int64_t chunk = 0; chunk < w.chunks(); ++chunk, out += kChunk) {
    unpack_lane(w.format.bits, block + static_cast<size_t>(chunk) * w.chunk_bytes(), lane, codes);
    expand_scales(w, block, chunk, 1, false, scale, bias);
    for (int i = 0; i < kChunk; ++i) {
      const int at = i * halves / kChunk * kBlockRows + lane;
      const float product = scale[at] * static_cast<float>(codes[i] - w.zero);
      out[i] = w.format.biased ? product + bias[at] : product;
    }
  }
}

}  // namespace quince::kernels
