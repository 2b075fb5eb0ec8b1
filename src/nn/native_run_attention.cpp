// The attention half of a layer: rotation of queries and keys, their place in the cache, and the
// attention kernels, shared out over the team.
#include <algorithm>
#include <cstring>

#include "nn/native_run.h"

namespace quince {

using kernels::AttentionHead;

AttentionHead StepRun::attention_head(const AttentionUnit& unit, size_t index) const {
  const auto kind = static_cast<size_t>(model_.kinds.kind[index]);
  const StepSegment& segment = step_.plan_.segments[static_cast<size_t>(unit.segment)];
  const kernels::KvLayout& layout = segment.layouts[kind];
  AttentionHead head;
  head.blocks = segment.blocks[kind]->blocks.data();
  head.block_count = static_cast<int>(segment.blocks[kind]->blocks.size());
  head.key_offset = layout.key_offset(model_.kinds.index[index], unit.head);
  head.value_offset = layout.value_offset(model_.kinds.index[index], unit.head);
  head.key_type = layout.key_type;
  head.value_type = layout.value_type;
  head.head_dim = spec_.head_dim;
  head.value_width = layout.value_width();
  head.group = spec_.heads / spec_.kv_heads;
  head.span = segment.spans[kind];
  return head;
}

size_t StepRun::query_bytes(int rows) const {
  const int64_t floats = int64_t{rows} * (spec_.heads / spec_.kv_heads) * spec_.head_dim;
  return (static_cast<size_t>(floats) * sizeof(float) + 63) / 64 * 64;
}

// Norm and rotation of one head of a row, in place; queries also get the attention scale.
void StepRun::turn(Member& me, const NativeLayer& layer, float* x, int64_t row, bool query) const {
  const std::vector<float>& norm = query ? layer.q_norm : layer.k_norm;
  if (!norm.empty()) {
    ops_.rms_norm(x, norm.data(), spec_.norm_eps, spec_.head_dim, x);
  }
  if (layer.rope >= 0) {
    const float* cos = me.at.rotations + (layer.rope * m_ + row) * 2 * rotation_half_;
    const int half = spec_.ropes[static_cast<size_t>(layer.rope)].dims / 2;
    ops_.rope(x, cos, cos + rotation_half_, half);
  }
  if (query) {
    ops_.scale(x, spec_.attention_scale, spec_.head_dim);
  }
}

// n of a row's queries, keys and values, with their bias.
void StepRun::fetch(
    const NativeLayer& layer, int64_t row, int64_t first, int64_t n, float* to) const {
  std::memcpy(to, qkv_ + row * qkv_width_ + first, static_cast<size_t>(n) * sizeof(float));
  if (!layer.qkv.bias.empty()) {
    ops_.add(to, layer.qkv.bias.data() + first, n);
  }
}

// The queries of a unit's row in their final form.
void StepRun::fetch_queries(
    Member& me, size_t index, const AttentionUnit& unit, int64_t row, float* to) const {
  const NativeLayer& layer = weights_.layers[index];
  const int64_t dim = spec_.head_dim;
  const int64_t width = spec_.heads / spec_.kv_heads * dim;
  fetch(layer, row, unit.head * width, width, to);
  for (int64_t at = 0; at < width; at += dim) {
    turn(me, layer, to + at, row, true);
  }
}

// Keys and values of segments of more than one row come to their places before any row attends.
void StepRun::store_keys(Member& me, size_t index) const {
  const NativeLayer& layer = weights_.layers[index];
  const int64_t dim = spec_.head_dim;
  const auto count = static_cast<int64_t>(step_.store_units_.size());
  for (int64_t i = me.team.next(); i < count; i = me.team.next()) {
    const AttentionUnit& unit = step_.store_units_[static_cast<size_t>(i)];
    const StepSegment& segment = step_.plan_.segments[static_cast<size_t>(unit.segment)];
    const int64_t key = (spec_.heads + unit.head) * dim;
    const int64_t value = (spec_.heads + spec_.kv_heads + unit.head) * dim;
    for (int64_t r = unit.first_row; r < unit.first_row + unit.rows; ++r) {
      float* row = qkv_ + r * qkv_width_;
      if (!layer.qkv.bias.empty()) {
        const float* bias = layer.qkv.bias.data();
        ops_.add(row + key, bias + key, dim);
        ops_.add(row + value, bias + value, dim);
      }
      turn(me, layer, row + key, r, false);
    }
    const AttentionHead head = attention_head(unit, index);
    const int64_t position = segment.position + unit.first_row - segment.first_row;
    const auto kind = static_cast<size_t>(model_.kinds.kind[index]);
    std::byte* block = segment.blocks[kind]->at(position).data;
    const float* row = qkv_ + unit.first_row * qkv_width_;
    attention_ops_.store(
        head,
        block + head.key_offset,
        block + head.value_offset,
        static_cast<int>(position % kernels::kKvBlock),
        unit.rows,
        row + key,
        row + value,
        qkv_width_);
  }
}

void StepRun::attend(Member& me, size_t index) const {
  if (!step_.store_units_.empty()) {
    store_keys(me, index);
    me.team.sync();
  }
  const bool last = index + 1 == weights_.layers.size();
  const std::vector<AttentionUnit>& units =
      last ? step_.last_units_ : step_.units_[static_cast<size_t>(model_.kinds.kind[index])];
  // Prompt rows differ in cost, so they are dealt one by one. Parts of single rows are dealt in
  // runs: neighbours continue in the same memory.
  const auto count = static_cast<int64_t>(units.size());
  const bool even = step_.store_units_.empty();
  const int64_t runs = even ? std::min<int64_t>(count, 2 * me.team.size()) : count;
  for (int64_t run = me.team.next(); run < runs; run = me.team.next()) {
    for (int64_t i = count * run / runs; i < count * (run + 1) / runs; ++i) {
      const AttentionUnit& unit = units[static_cast<size_t>(i)];
      if (unit.single) {
        attend_single(me, index, unit);
      } else {
        attend_many(me, index, unit);
      }
    }
  }
}

// Every part of a row turns the queries for itself; of a row that is alone in its segment, the part
// with the row's own block also stores the key and value, which no other part reads.
void StepRun::attend_single(Member& me, size_t index, const AttentionUnit& unit) const {
  const NativeLayer& layer = weights_.layers[index];
  const StepSegment& segment = step_.plan_.segments[static_cast<size_t>(unit.segment)];
  const AttentionHead head = attention_head(unit, index);
  const int64_t dim = spec_.head_dim;
  float* q = reinterpret_cast<float*>(me.at.scratch);
  fetch_queries(me, index, unit, unit.first_row, q);
  if (unit.stores) {
    float* k = q + head.group * dim;
    float* v = k + dim;
    fetch(layer, unit.first_row, (spec_.heads + unit.head) * dim, dim, k);
    fetch(layer, unit.first_row, (spec_.heads + spec_.kv_heads + unit.head) * dim, dim, v);
    turn(me, layer, k, unit.first_row, false);
    std::byte* block = head.blocks[unit.last_block - 1].data;
    attention_ops_.store(
        head,
        block + head.key_offset,
        block + head.value_offset,
        static_cast<int>(segment.position % kernels::kKvBlock),
        1,
        k,
        v,
        dim);
  }
  attention_ops_.attend_row(
      head,
      q,
      segment.position + unit.first_row - segment.first_row,
      unit.first_block,
      unit.last_block,
      partials_ + unit.partial);
}

void StepRun::attend_many(Member& me, size_t index, const AttentionUnit& unit) const {
  const StepSegment& segment = step_.plan_.segments[static_cast<size_t>(unit.segment)];
  const AttentionHead head = attention_head(unit, index);
  const int64_t width = int64_t{head.group} * spec_.head_dim;
  const int64_t first = unit.head * width;
  float* q = reinterpret_cast<float*>(me.at.scratch);
  for (int64_t r = 0; r < unit.rows; ++r) {
    fetch_queries(me, index, unit, unit.first_row + r, q + r * width);
  }
  attention_ops_.attend_rows(
      head,
      q,
      width,
      unit.rows,
      segment.position + unit.first_row - segment.first_row,
      me.at.attended + unit.first_row * attended_width_ + first,
      attended_width_,
      me.at.scratch + query_bytes(unit.rows));
}

// A single row's parts into its place among the attended rows; nothing for others, which are there.
void StepRun::merge_row(Member& me, size_t index, int64_t row) const {
  const auto s = static_cast<size_t>(step_.row_segment_[static_cast<size_t>(row)]);
  const StepSegment& segment = step_.plan_.segments[s];
  if (!segment.by_row) {
    return;
  }
  const auto kind = static_cast<size_t>(model_.kinds.kind[index]);
  AttentionUnit unit;
  unit.segment = static_cast<int>(s);
  const int64_t base = step_.row_partials_[kind][static_cast<size_t>(row)];
  const int parts =
      kernels::row_parts(segment.blocks_to(kind, static_cast<int>(row) - segment.first_row)).count;
  for (int h = 0; h < spec_.kv_heads; ++h) {
    unit.head = h;
    const AttentionHead head = attention_head(unit, index);
    attention_ops_.merge(
        head,
        partials_ + base + h * parts * kernels::partial_size(head),
        parts,
        me.at.attended + row * attended_width_ +
            static_cast<int64_t>(h) * head.group * spec_.head_dim);
  }
}

PreparedRows StepRun::attended(Member& me, size_t index) const {
  const NativeLinear& o = weights_.layers[index].o;
  PreparedRows rows = forms(o, me.m, me.at.prepared);
  for (int64_t r = me.first; r < me.last && !me.kept; ++r) {
    merge_row(me, index, r);
  }
  for (int i = 0; i < rows.count; ++i) {
    kernels::prepare(rows.rows[i], me.at.attended, attended_width_, me.first, me.last);
  }
  sync_rows(me);
  return rows;
}

}  // namespace quince
