#include "nn/native_run.h"

#include <algorithm>
#include <cstring>
#include <span>

#include <fmt/format.h>

#include "kernels/rope.h"
#include "nn/rope_scaling.h"

namespace quince {

namespace {

using kernels::RowKind;
using kernels::Rows;

// Hands out pieces of one allocation; measures it first when there is none.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}
  float* floats(int64_t count) {
    return reinterpret_cast<float*>(bytes(static_cast<size_t>(count) * sizeof(float)));
  }
  std::byte* bytes(size_t size) {
    std::byte* piece = base_ ? base_ + used_ : nullptr;
    used_ += (size + 63) / 64 * 64;
    return piece;
  }
  size_t used() const {
    return used_;
  }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

}  // namespace

const Rows& PreparedRows::of(RowKind kind) const {
  int i = 0;
  while (i + 1 < count && rows[i].kind != kind) {
    ++i;
  }
  return rows[i];
}

StepRun::StepRun(
    const NativeStep& step,
    Workspace& workspace,
    int team_size,
    const int32_t* tokens,
    int64_t token_stride,
    float* logits)
    : step_(step),
      model_(*step.model_),
      weights_(model_.weights),
      spec_(weights_.spec),
      ops_(*model_.row_ops),
      attention_ops_(*model_.attention_ops),
      tokens_(tokens),
      token_stride_(token_stride),
      logits_(logits),
      m_(step.plan_.rows),
      alone_(m_ == 1 && step.plan_.segments.front().alone()),
      qkv_width_(static_cast<int64_t>(spec_.heads + 2 * spec_.kv_heads) * spec_.head_dim),
      attended_width_(static_cast<int64_t>(spec_.heads) * spec_.head_dim) {
  for (const RopeSpec& rope : spec_.ropes) {
    rotation_half_ = std::max<int64_t>(rotation_half_, rope.dims / 2);
  }
  lay_out(workspace, team_size);
}

size_t StepRun::prepared_room(const NativeLinear& linear, int64_t m) const {
  Carver room(nullptr);
  const PreparedRows rows = forms(linear, m, nullptr);
  for (int i = 0; i < rows.count; ++i) {
    room.bytes(kernels::prepared_bytes(rows.rows[i].kind, m, linear.columns));
  }
  return room.used();
}

size_t StepRun::prepared_room(int64_t m) const {
  size_t most = 0;
  const auto add = [&](const NativeLinear& linear) {
    most = std::max(most, prepared_room(linear, m));
  };
  for (const NativeLayer& layer : weights_.layers) {
    add(layer.qkv);
    add(layer.o);
    add(layer.gate_up);
    add(layer.down);
  }
  const auto head_rows = static_cast<int64_t>(step_.plan_.logit_rows.size());
  return std::max(
      most,
      kernels::prepared_bytes(row_kind(weights_.head(), head_rows), head_rows, spec_.hidden_size));
}

void StepRun::lay_out(Workspace& workspace, int team_size) {
  const int64_t m = m_;
  const int64_t hidden = spec_.hidden_size;
  const int64_t inner = spec_.intermediate_size;
  const auto kept = static_cast<int64_t>(step_.plan_.logit_rows.size());
  // The last layer computes with the wanted rows only: another number, perhaps other forms.
  const size_t prepared = std::max(prepared_room(m), kept > 0 ? prepared_room(kept) : 0);
  size_t scratch = static_cast<size_t>(spec_.heads / spec_.kv_heads + 2) * spec_.head_dim * 4 + 64;
  for (const auto& units : step_.units_) {
    for (const AttentionUnit& unit : units) {
      if (!unit.single) {
        scratch = std::max(
            scratch,
            query_bytes(unit.rows) +
                attention_ops_.rows_workspace(attention_head(unit, 0), unit.rows));
      }
    }
  }
  // A fused gate leaves the next matrix's input there: whole tiles of rows, however few there are.
  size_t gate_up = static_cast<size_t>(m * 2 * inner) * sizeof(float);
  for (const NativeLayer& layer : weights_.layers) {
    gate_up = std::max({gate_up, prepared_room(layer.down, m), prepared_room(layer.down, kept)});
  }
  const auto carve = [&](std::byte* base) {
    Carver room(base);
    qkv_ = room.floats(m * qkv_width_);
    output_ = room.floats(m * hidden);
    gate_up_ = reinterpret_cast<float*>(room.bytes(gate_up));
    partials_ = room.floats(step_.partial_floats_);
    kept_x_ = room.floats(kept * hidden);
    kept_attended_ = room.floats(kept * attended_width_);
    regions_.clear();
    for (int rank = 0; rank < team_size; ++rank) {
      RowRegion region;
      if (rank > 0 && !alone_) {
        region = regions_.front();
      } else {
        region.x = room.floats(m * hidden);
        region.attended = room.floats(m * attended_width_);
        region.activated = alone_ ? room.floats(inner) : gate_up_;
        region.activated_stride = alone_ ? inner : 2 * inner;
        region.rotations =
            room.floats(static_cast<int64_t>(spec_.ropes.size()) * m * 2 * rotation_half_);
        region.prepared = room.bytes(prepared);
      }
      region.h = room.floats(hidden);
      region.scratch = room.bytes(scratch);
      regions_.push_back(region);
    }
    return room.used();
  };
  carve(workspace.reserve(carve(nullptr)));
}

RowKind StepRun::row_kind(const kernels::PackedMatrix& matrix, int64_t m) const {
  return kernels::row_kind(matrix, model_.batch_invariant ? std::max(m, kernels::kManyRows) : m);
}

PreparedRows StepRun::forms(const NativeLinear& linear, int64_t m, std::byte* room) const {
  PreparedRows out;
  Carver carver(room);
  for (const kernels::PackedMatrix& part : linear.parts) {
    const RowKind kind = row_kind(part, m);
    bool known = false;
    for (int i = 0; i < out.count; ++i) {
      known = known || out.rows[i].kind == kind;
    }
    if (!known) {
      const size_t bytes = room ? kernels::prepared_bytes(kind, m, linear.columns) : 0;
      out.rows[out.count++] = Rows{kind, m, linear.columns, carver.bytes(bytes)};
    }
  }
  return out;
}

void StepRun::share(Member& me, int64_t rows) const {
  me.m = rows;
  me.first = 0;
  me.last = rows;
  if (!alone_) {
    const int64_t unit = rows >= 2 * kRowGroup ? kRowGroup : 1;
    const int64_t units = (rows + unit - 1) / unit;
    me.first = std::min(rows, units * me.team.rank() / me.team.size() * unit);
    me.last = std::min(rows, units * (me.team.rank() + 1) / me.team.size() * unit);
  }
}

// After work on shared rows, before somebody reads them all.
void StepRun::sync_rows(Member& me) const {
  if (!alone_) {
    me.team.sync();
  }
}

void StepRun::member(Team& team) {
  Member me{team, regions_[static_cast<size_t>(team.rank())]};
  share(me, m_);
  embed(me);
  Delta delta;
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    layer(me, i, delta);
    if (me.m == 0) {
      return;
    }
  }
  head(me, delta);
}

void StepRun::embed(Member& me) const {
  for (int64_t r = me.first; r < me.last; ++r) {
    const int32_t token = tokens_[r * token_stride_];
    if (token < 0 || token >= spec_.vocab_size) {
      throw std::runtime_error(
          fmt::format("token {} is outside the model's vocabulary of {}", token, spec_.vocab_size));
    }
    float* x = me.at.x + r * spec_.hidden_size;
    weights_.embedding().unpack_row(token, x);
    if (spec_.embed_scale != 1.0f) {
      ops_.scale(x, spec_.embed_scale, spec_.hidden_size);
    }
    const StepSegment& segment =
        step_.plan_.segments[static_cast<size_t>(step_.row_segment_[static_cast<size_t>(r)])];
    for (size_t i = 0; i < spec_.ropes.size(); ++i) {
      const std::vector<float>& own = segment.inv_freq[i];
      float* cos = me.at.rotations + (static_cast<int64_t>(i) * m_ + r) * 2 * rotation_half_;
      kernels::rope_angles(
          own.empty() ? spec_.ropes[i].inv_freq : own,
          segment.position + r - segment.first_row,
          spec_.ropes[i].attention_factor,
          cos,
          cos + rotation_half_);
    }
  }
}

void StepRun::layer(Member& me, size_t index, Delta& delta) const {
  const NativeLayer& layer = weights_.layers[index];
  const bool last = index + 1 == weights_.layers.size();
  const kernels::PackedMatrix& next =
      last ? weights_.head() : weights_.layers[index + 1].qkv.parts.front();

  PreparedRows rows = enter(me, delta, layer.input_norm, layer.qkv);
  multiply(me, layer.qkv, rows, qkv_, qkv_width_, kernels::Store::set, layer.o.parts.front());
  me.team.sync();
  attend(me, index);
  if (last && step_.plan_.logit_rows.empty()) {
    share(me, 0);
    return;
  }
  me.team.sync();
  if (last && !alone_ && static_cast<int64_t>(step_.plan_.logit_rows.size()) < me.m) {
    keep_logit_rows(me);
  }
  rows = attended(me, index);
  delta = project(me, layer.o, layer.attention_out_norm, rows, layer.gate_up.parts.front());

  rows = enter(me, delta, layer.mlp_norm, layer.gate_up);
  rows = gate(me, layer, rows);
  delta = project(me, layer.down, layer.mlp_out_norm, rows, next);
}

}  // namespace quince
