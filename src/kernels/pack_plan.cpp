// Which form a source is held in.
#include "kernels/pack_plan.h"

#include "base/error.h"

namespace quince::kernels {

namespace {

PackPlan direct(int bits, int group, bool biased, int zero, ScalePlan scales, PackRoute route) {
  PackPlan plan;
  plan.route = route;
  plan.format = {PackedKind::direct, bits, group, biased};
  plan.scales = scales;
  plan.zero = zero;
  return plan;
}

PackPlan two_level(int bits, int group, bool biased, int zero, ScalePlan scales) {
  PackPlan plan;
  plan.route = PackRoute::keep_codes;
  plan.format = {PackedKind::two_level, bits, group, biased};
  plan.scales = scales;
  plan.zero = zero;
  return plan;
}

PackPlan plain(PackedKind kind, PackRoute route) {
  PackPlan plan;
  plan.route = route;
  plan.format = {kind, kind == PackedKind::f32 ? 32 : 16, 0, false};
  return plan;
}

PackPlan plan_of_type(TensorType type) {
  constexpr ScalePlan kF16 = ScalePlan::direct_f16;
  constexpr PackRoute kKeep = PackRoute::keep_codes;
  switch (type) {
    case TensorType::q4_0:
      return direct(4, 32, false, 8, kF16, kKeep);
    case TensorType::q4_1:
      return direct(4, 32, true, 0, kF16, kKeep);
    case TensorType::q5_0:
      return direct(5, 32, false, 16, kF16, kKeep);
    case TensorType::q5_1:
      return direct(5, 32, true, 0, kF16, kKeep);
    case TensorType::q8_0:
      return direct(8, 32, false, 128, kF16, kKeep);
    case TensorType::q2_k:
      return two_level(2, 16, true, 0, ScalePlan::k_4_4);
    case TensorType::q3_k:
      return two_level(3, 16, false, 4, ScalePlan::k_6);
    case TensorType::q4_k:
      return two_level(4, 32, true, 0, ScalePlan::k_6_6);
    case TensorType::q5_k:
      return two_level(5, 32, true, 0, ScalePlan::k_6_6);
    case TensorType::q6_k:
      return two_level(6, 16, false, 32, ScalePlan::k_8);
    case TensorType::f16:
      return plain(PackedKind::f16, PackRoute::dense);
    case TensorType::bf16:
      return plain(PackedKind::bf16, PackRoute::dense);
    case TensorType::f32:
      return plain(PackedKind::f32, PackRoute::dense);
    case TensorType::f8_e4m3:  // every value of either is a bf16
    case TensorType::f8_e5m2:
      return plain(PackedKind::bf16, PackRoute::decode_bf16);
    case TensorType::f64:
    case TensorType::i64:
    case TensorType::i32:
    case TensorType::i16:
    case TensorType::i8:
    case TensorType::u64:
    case TensorType::u32:
    case TensorType::u16:
    case TensorType::u8:
    case TensorType::boolean:
      return plain(PackedKind::f32, PackRoute::decode_f32);
    default:  // IQ*, TQ*, MXFP4
      return direct(8, 32, false, 128, ScalePlan::direct_f32, PackRoute::decode_int8);
  }
}

ScalePlan mlx_scales(const PackSource& source) {
  const TensorType scales = source.scales->type;
  if (scales == source.biases->type && scales == TensorType::f16) {
    return ScalePlan::direct_f16;
  }
  if (scales == source.biases->type && scales == TensorType::bf16) {
    return ScalePlan::direct_bf16;
  }
  return ScalePlan::direct_f32;
}

void check_mlx_part(const PackSource& source, const TensorView& part, const PackPlan& plan) {
  const bool is_float =
      part.type == TensorType::f16 || part.type == TensorType::bf16 || part.type == TensorType::f32;
  if (!is_float) {
    throw UserError(
        "{}: type {}; the scales and biases of {} must be F16, BF16 or F32",
        part.name,
        info(part.type).name,
        source.weight.name);
  }
  const int64_t groups = plan.columns / plan.format.group;
  if (part.rows() != plan.rows || part.columns() != groups) {
    throw UserError(
        "{}: shape {}, but {} with {} bits in groups of {} needs [{}, {}]",
        part.name,
        shape_text(part.shape),
        source.weight.name,
        plan.format.bits,
        plan.format.group,
        plan.rows,
        groups);
  }
}

PackPlan plan_of_mlx(const PackSource& source) {
  const TensorView& w = source.weight;
  const int bits = source.bits;
  const int group = source.group;
  if (bits < 2 || bits > 8 || bits == 7) {
    throw UserError("{}: {} bits; affine weights have 2, 3, 4, 5, 6 or 8", w.name, bits);
  }
  if (group != 32 && group != 64 && group != 128) {
    throw UserError("{}: groups of {}; affine weights have groups of 32, 64 or 128", w.name, group);
  }
  if (w.type != TensorType::u32) {
    throw UserError(
        "{}: type {}; affine codes must be U32 (is this tensor really quantized?)",
        w.name,
        info(w.type).name);
  }
  if (!source.biases) {
    throw UserError("{}: has scales but no biases; affine weights need both", w.name);
  }
  PackPlan plan = direct(bits, group, true, 0, mlx_scales(source), PackRoute::mlx_triple);
  plan.rows = w.rows();
  plan.columns = w.columns() * 32 / bits;
  if (w.columns() * 32 % bits != 0 || plan.columns % group != 0) {
    throw UserError(
        "{}: {} words a row do not hold whole groups of {} codes of {} bits",
        w.name,
        w.columns(),
        group,
        bits);
  }
  check_mlx_part(source, *source.scales, plan);
  check_mlx_part(source, *source.biases, plan);
  return plan;
}

}  // namespace

bool PackPlan::operator==(const PackPlan& other) const {
  return route == other.route && format.kind == other.format.kind &&
         format.bits == other.format.bits && format.group == other.format.group &&
         format.biased == other.format.biased && scales == other.scales && zero == other.zero &&
         rows == other.rows && columns == other.columns;
}

PackPlan plan_of(const PackSource& source) {
  if (source.scales) {
    return plan_of_mlx(source);
  }
  PackPlan plan = plan_of_type(source.weight.type);
  if (source.weight.add != 0.0f) {
    // Codes cannot carry a constant without a second rounding. Only norm weights have one in
    // practice, and those are vectors of a few kilobytes.
    plan = plain(PackedKind::f32, PackRoute::decode_f32);
  }
  plan.rows = source.weight.rows();
  plan.columns = source.weight.columns();
  return plan;
}

}  // namespace quince::kernels
