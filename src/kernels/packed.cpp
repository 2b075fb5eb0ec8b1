#include "kernels/packed.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kernels/pack_block.h"
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
    const size_t bytes = static_cast<size_t>(layout.blocks) * layout.block_bytes;
    layout.memory = arena ? arena->allocate(bytes) : allocate_alone(bytes);
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
  for (int64_t chunk = 0; chunk < w.chunks(); ++chunk) {
    unpack_floats(w, block, chunk, lane, out + chunk * kChunk);
  }
}

}  // namespace quince::kernels
