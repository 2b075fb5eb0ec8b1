// What a step does row by row between its matrices: norms, residual sums, activations, and the
// matrices themselves.
#include <algorithm>
#include <cstring>

#include "nn/native_run.h"

namespace quince {

using kernels::RowKind;
using kernels::Rows;

namespace {

// A single row's activations are shared out by columns when there are more than this.
constexpr int64_t kManyColumns = 4096;

kernels::GateActivation gate_activation(Activation activation) {
  return activation == Activation::silu        ? kernels::GateActivation::silu
         : activation == Activation::gelu_tanh ? kernels::GateActivation::gelu_tanh
                                               : kernels::GateActivation::gelu;
}

}  // namespace

void StepRun::add_delta(Member& me, const Delta& delta, int64_t row) const {
  const int64_t hidden = spec_.hidden_size;
  float* x = me.at.x + row * hidden;
  const float* y = output_ + row * hidden;
  if (!delta.bias->empty() || !delta.norm->empty()) {
    // In h, which is this member's: other members may be reading the output.
    float* h = me.at.h;
    std::memcpy(h, y, static_cast<size_t>(hidden) * sizeof(float));
    if (!delta.bias->empty()) {
      ops_.add(h, delta.bias->data(), hidden);
    }
    if (!delta.norm->empty()) {
      ops_.rms_norm(h, delta.norm->data(), spec_.norm_eps, hidden, h);
    }
    y = h;
  }
  ops_.add(x, y, hidden);
}

// x += delta, then its norm in the forms that the linear wants.
PreparedRows StepRun::enter(
    Member& me,
    const Delta& delta,
    const std::vector<float>& norm,
    const NativeLinear& linear) const {
  const int64_t hidden = spec_.hidden_size;
  PreparedRows rows = forms(linear, me.m, me.at.prepared);
  for (int64_t r = me.first; r < me.last; ++r) {
    if (delta.any) {
      add_delta(me, delta, r);
    }
    ops_.rms_norm(me.at.x + r * hidden, norm.data(), spec_.norm_eps, hidden, me.at.h);
    for (int i = 0; i < rows.count; ++i) {
      kernels::prepare(rows.rows[i], me.at.h, 0, r, r + 1);
    }
  }
  sync_rows(me);
  return rows;
}

// next: the matrix after this linear.
void StepRun::multiply(
    Member& me,
    const NativeLinear& linear,
    const PreparedRows& rows,
    float* y,
    int64_t ldy,
    kernels::Store store,
    const kernels::PackedMatrix& next) const {
  for (size_t i = 0; i < linear.parts.size(); ++i) {
    const kernels::PackedMatrix& part = linear.parts[i];
    const RowKind kind = row_kind(part, me.m);
    kernels::matmul(me.team, part, rows.of(kind), y, ldy, store);
    kernels::ask_ahead(me.team, i + 1 < linear.parts.size() ? linear.parts[i + 1] : next, me.m);
    me.team.restart();
    y += part.rows();
  }
}

// A linear whose result, after `norm` if there is one, joins the residual stream: at once where
// nothing stands between them, else the delta tells what is left to do.
StepRun::Delta StepRun::project(
    Member& me,
    const NativeLinear& linear,
    const std::vector<float>& norm,
    const PreparedRows& rows,
    const kernels::PackedMatrix& next) const {
  const bool at_once = !alone_ && linear.bias.empty() && norm.empty();
  float* y = at_once ? me.at.x : output_;
  const kernels::Store store = at_once ? kernels::Store::add : kernels::Store::set;
  multiply(me, linear, rows, y, spec_.hidden_size, store, next);
  me.team.sync();
  return at_once ? Delta{} : Delta{true, &linear.bias, &norm};
}

// The MLP between its norm and its last projection.
PreparedRows StepRun::gate(Member& me, const NativeLayer& layer, const PreparedRows& rows) const {
  const NativeLinear& linear = layer.gate_up;
  if (!alone_ && linear.parts.size() == 1) {
    const kernels::PackedMatrix& matrix = linear.parts.front();
    const Rows& x = rows.of(row_kind(matrix, me.m));
    PreparedRows out = forms(layer.down, me.m, reinterpret_cast<std::byte*>(gate_up_));
    if (out.count == 1 && kernels::can_gate(matrix, x, out.rows[0].kind)) {
      const kernels::Gate gate{
          gate_activation(spec_.activation), linear.bias.empty() ? nullptr : linear.bias.data()};
      kernels::matmul_gated(me.team, matrix, x, gate, out.rows[0]);
      me.team.sync();
      return out;
    }
  }
  multiply(
      me,
      linear,
      rows,
      gate_up_,
      2 * static_cast<int64_t>(spec_.intermediate_size),
      kernels::Store::set,
      layer.down.parts.front());
  me.team.sync();
  return activation(me, layer);
}

// out[0, last - first): act(gate) * up of columns [first, last) of a row. out may be where gate is.
void StepRun::activate(
    const NativeLayer& layer, int64_t row, int64_t first, int64_t last, float* out) const {
  constexpr int64_t kPiece = 256;
  const int64_t inner = spec_.intermediate_size;
  const auto act = spec_.activation == Activation::silu        ? ops_.silu_mul
                   : spec_.activation == Activation::gelu_tanh ? ops_.gelu_tanh_mul
                                                               : ops_.gelu_mul;
  const float* bias = layer.gate_up.bias.empty() ? nullptr : layer.gate_up.bias.data();
  for (int64_t c = first; c < last; c += kPiece) {
    const int64_t n = std::min(kPiece, last - c);
    const float* gate = gate_up_ + row * 2 * inner + c;
    const float* up = gate + inner;
    float biased[2][kPiece];
    if (bias) {
      std::copy_n(gate, n, biased[0]);
      std::copy_n(up, n, biased[1]);
      ops_.add(biased[0], bias + c, n);
      ops_.add(biased[1], bias + inner + c, n);
      gate = biased[0];
      up = biased[1];
    }
    act(gate, up, n, out + (c - first));
  }
}

PreparedRows StepRun::activation(Member& me, const NativeLayer& layer) const {
  const int64_t inner = spec_.intermediate_size;
  PreparedRows rows = forms(layer.down, me.m, me.at.prepared);
  const auto prepare = [&](const float* x, int64_t first, int64_t last) {
    for (int i = 0; i < rows.count; ++i) {
      kernels::prepare(rows.rows[i], x, me.at.activated_stride, first, last);
    }
  };
  if (alone_ && inner > kManyColumns && me.team.size() > 1) {
    float* together = regions_.front().activated;
    const int64_t units = (inner + kRowGroup - 1) / kRowGroup;
    const int64_t first = units * me.team.rank() / me.team.size() * kRowGroup;
    const int64_t last = std::min(inner, units * (me.team.rank() + 1) / me.team.size() * kRowGroup);
    activate(layer, 0, first, last, together + first);
    me.team.sync();
    prepare(together, 0, 1);
    return rows;
  }
  for (int64_t first = me.first; first < me.last; first += kRowGroup) {
    const int64_t last = std::min(me.last, first + kRowGroup);
    for (int64_t r = first; r < last; ++r) {
      activate(layer, r, 0, inner, me.at.activated + r * me.at.activated_stride);
    }
    prepare(me.at.activated, first, last);
  }
  sync_rows(me);
  return rows;
}

// From here on only rows whose logits are wanted go on: moves what is still needed of them
// together.
void StepRun::keep_logit_rows(Member& me) const {
  const std::vector<int>& wanted = step_.plan_.logit_rows;
  // Everybody's rows are complete and nobody needs x or the attention's output any more: but the
  // partial results of single rows are merged by their old number, so merge first.
  share(me, static_cast<int64_t>(wanted.size()));
  for (int64_t i = me.first; i < me.last; ++i) {
    const int64_t row = wanted[static_cast<size_t>(i)];
    merge_row(me, weights_.layers.size() - 1, row);
    std::copy_n(
        me.at.x + row * spec_.hidden_size, spec_.hidden_size, kept_x_ + i * spec_.hidden_size);
    std::copy_n(
        me.at.attended + row * attended_width_,
        attended_width_,
        kept_attended_ + i * attended_width_);
  }
  me.at.x = kept_x_;
  me.at.attended = kept_attended_;
  me.kept = true;
}

void StepRun::head(Member& me, const Delta& delta) const {
  const int64_t hidden = spec_.hidden_size;
  const int64_t vocab = spec_.vocab_size;
  if (step_.plan_.states) {
    if (alone_ && me.team.rank() != 0) {
      return;  // everybody has the same row
    }
    for (int64_t r = me.first; r < me.last; ++r) {
      if (delta.any) {
        add_delta(me, delta, r);
      }
      ops_.rms_norm(
          me.at.x + r * hidden,
          weights_.final_norm.data(),
          spec_.norm_eps,
          hidden,
          logits_ + r * hidden);
    }
    return;
  }
  const Rows rows{row_kind(weights_.head(), me.m), me.m, hidden, me.at.prepared};
  for (int64_t r = me.first; r < me.last; ++r) {
    if (delta.any) {
      add_delta(me, delta, r);
    }
    ops_.rms_norm(
        me.at.x + r * hidden, weights_.final_norm.data(), spec_.norm_eps, hidden, me.at.h);
    kernels::prepare(rows, me.at.h, 0, r, r + 1);
  }
  sync_rows(me);
  kernels::matmul(me.team, weights_.head(), rows, logits_, vocab, kernels::Store::set);
  if (spec_.final_softcap > 0.0f) {
    me.team.sync();
    const int64_t first = vocab * me.team.rank() / me.team.size();
    const int64_t last = vocab * (me.team.rank() + 1) / me.team.size();
    for (int64_t r = 0; r < me.m; ++r) {
      ops_.softcap(logits_ + r * vocab + first, spec_.final_softcap, last - first);
    }
  }
}

}  // namespace quince
