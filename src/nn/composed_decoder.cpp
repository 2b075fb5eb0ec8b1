#include "nn/composed_decoder.h"

#include <cmath>
#include <map>
#include <stdexcept>

#include <mlx/mlx.h>

#include "base/error.h"
#include "nn/composed_attention.h"
#include "nn/rope_scaling.h"

namespace quince {
namespace {

namespace mx = mlx::core;

mx::array to_periods(const std::vector<float>& inv_freq) {
  std::vector<float> periods(inv_freq.size());
  for (size_t i = 0; i < periods.size(); ++i) {
    periods[i] = 1.0f / inv_freq[i];
  }
  return mx::array(periods.begin(), {static_cast<int>(periods.size())}, mx::float32);
}

// MLX's quantized matmul on CPU sums in the type of its operands, which costs far more than 16-bit
// activations do (its GPU kernels sum in f32).
mx::Dtype default_type(const MatrixSource& embedding) {
  const bool quantized = embedding.layout || info(embedding.weight.type).block > 1;
  return quantized && mx::default_device() == mx::Device::cpu ? mx::float32
                                                              : natural_type(embedding);
}

// A dynamic rope past its original length: the frequencies are the sequence's own.
bool stretched(const RopeSpec& rope, int64_t length) {
  return rope.dynamic_factor != 0.0f && length > rope.original_length;
}

bool consecutive(const std::vector<int>& rows) {
  return rows.empty() || rows.back() - rows.front() + 1 == static_cast<int>(rows.size());
}

}  // namespace

struct ComposedDecoder::Step {
  explicit Step(const Batch& batch) {
    for (const Segment& segment : batch.segments) {
      auto* cache = dynamic_cast<ComposedCache*>(segment.cache);
      if (!cache || segment.rows < 1) {
        throw std::logic_error(
            "[ComposedDecoder] a segment without rows, or with a cache of another decoder");
      }
      caches.push_back(cache);
      rows.push_back(segment.rows);
      offsets.push_back(static_cast<int32_t>(cache->length()));
      longest = std::max<int64_t>(longest, cache->length() + segment.rows);
      one_row_each = one_row_each && segment.rows == 1;
      total += segment.rows;
      ends.push_back(total);
    }
    masks.resize(caches.size());
  }

  // Layers of one window size share a mask; it is asked for before the layer's update.
  const AttentionMask& mask(size_t segment, size_t layer, int window) {
    auto found = masks[segment].find(window);
    if (found == masks[segment].end()) {
      found =
          masks[segment].emplace(window, caches[segment]->layer(layer).mask(rows[segment])).first;
    }
    return found->second;
  }

  // One for all sequences when each has one row, else a scalar each.
  const mx::array& offset(size_t segment) {
    if (offset_arrays.empty() && one_row_each) {
      offset_arrays.emplace_back(
          offsets.begin(), mx::Shape{static_cast<int>(offsets.size())}, mx::int32);
    } else if (offset_arrays.empty()) {
      for (const int32_t at : offsets) {
        offset_arrays.emplace_back(at, mx::int32);
      }
    }
    return offset_arrays[segment];
  }

  std::vector<ComposedCache*> caches;
  std::vector<int> rows;
  std::vector<int> ends;         // row of the batch behind each segment
  std::vector<int32_t> offsets;  // tokens in the cache before this step
  int total = 0;
  int64_t longest = 0;
  bool one_row_each = true;
  std::vector<std::map<int, AttentionMask>> masks;  // a segment: by window
  std::vector<mx::array> offset_arrays;
  std::map<std::pair<int, int64_t>, mx::array> stretched;  // dynamic: (rope, length) -> periods
};

ComposedDecoder::ComposedDecoder(
    const DecoderSpec& spec, Weights& weights, const LoadOptions& options)
    : spec_(spec),
      type_(mx::float32),
      attention_scale_(spec.attention_scale),
      activation_(make_gated_activation(spec.activation, mx::default_device() == mx::Device::gpu)) {
  const auto progress = [&](double share) {
    if (options.progress) {
      options.progress(share);
    }
  };
  const auto note = [&](const MatrixSource& source, const MatrixWeight& held) {
    if (!options.dequantize) {
      notes_.add(source, held);
    }
  };
  const MatrixSource embedding =
      take_matrix(weights, "model.embed_tokens", spec.vocab_size, spec.hidden_size);
  type_ = options.dtype.value_or(default_type(embedding));
  tables_.push_back(MatrixWeight::load(embedding, type_, options));
  note(embedding, tables_.back());
  bytes_ += tables_.back().bytes();
  const double parts = static_cast<double>(spec.layers.size()) + 2.0;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    progress((static_cast<double>(i) + 1.0) / parts);
    layers_.push_back(load_layer(weights, static_cast<int>(i), options));
  }
  progress((parts - 1.0) / parts);
  final_norm_ = load_norm(weights, "model.norm", spec.hidden_size, options);
  if (!spec.tied_embeddings) {
    const MatrixSource head = take_matrix(weights, "lm_head", spec.vocab_size, spec.hidden_size);
    tables_.push_back(MatrixWeight::load(head, type_, options));
    note(head, tables_.back());
    bytes_ += tables_.back().bytes();
  }
  for (const RopeSpec& rope : spec.ropes) {
    if (rope.attention_factor != 1.0f && rope.dims != spec.head_dim) {
      throw UserError(
          "{}: a rope that scales attention (yarn) and leaves dimensions of the head out is not "
          "supported",
          weights.source());
    }
    periods_.push_back(to_periods(rope.inv_freq));
  }
  progress(1.0);
}

ComposedDecoder::Linear ComposedDecoder::load_linear(
    Weights& weights,
    const std::string& path,
    int rows,
    int columns,
    bool bias,
    const LoadOptions& options) {
  const MatrixSource source = take_matrix(weights, path, rows, columns);
  Linear linear{MatrixWeight::load(source, type_, options), std::nullopt};
  if (!options.dequantize) {
    notes_.add(source, linear.weight);
  }
  bytes_ += linear.weight.bytes();
  if (bias) {
    linear.bias = load_dense(weights.take(path + ".bias", {rows}), type_, options);
    bytes_ += linear.bias->nbytes();
  }
  return linear;
}

mx::array ComposedDecoder::load_norm(
    Weights& weights, const std::string& path, int size, const LoadOptions& options) {
  const TensorView view = weights.take(path + ".weight", {size});
  mx::array weight = load_dense(view, spec_.norm_plus_one ? mx::float32 : type_, options);
  if (spec_.norm_plus_one) {
    weight = mx::astype(weight + mx::array(1.0f), type_);
    weight.eval();
  }
  bytes_ += weight.nbytes();
  return weight;
}

ComposedDecoder::Layer ComposedDecoder::load_layer(
    Weights& weights, int i, const LoadOptions& options) {
  const DecoderSpec& s = spec_;
  const std::string at = fmt::format("model.layers.{}.", i);
  const std::string attn = at + "self_attn.";
  const std::string mlp = at + "mlp.";
  const int q_size = s.heads * s.head_dim;
  const int kv_size = s.kv_heads * s.head_dim;
  const auto head_norm = [&](const char* name) -> std::optional<mx::array> {
    if (!s.qk_norm) {
      return std::nullopt;
    }
    return load_norm(weights, attn + name, s.head_dim, options);
  };
  const auto block_norm = [&](const char* name) {
    return load_norm(weights, at + name, s.hidden_size, options);
  };
  Layer layer{
      .spec = s.layers[static_cast<size_t>(i)],
      .input_norm = block_norm("input_layernorm"),
      .q = load_linear(weights, attn + "q_proj", q_size, s.hidden_size, s.qkv_bias, options),
      .k = load_linear(weights, attn + "k_proj", kv_size, s.hidden_size, s.qkv_bias, options),
      .v = load_linear(weights, attn + "v_proj", kv_size, s.hidden_size, s.qkv_bias, options),
      .o = load_linear(weights, attn + "o_proj", s.hidden_size, q_size, s.o_bias, options),
      .q_norm = head_norm("q_norm"),
      .k_norm = head_norm("k_norm"),
      .attention_out_norm = std::nullopt,
      .mlp_norm =
          block_norm(s.sandwich_norms ? "pre_feedforward_layernorm" : "post_attention_layernorm"),
      .gate = load_linear(
          weights, mlp + "gate_proj", s.intermediate_size, s.hidden_size, s.mlp_bias, options),
      .up = load_linear(
          weights, mlp + "up_proj", s.intermediate_size, s.hidden_size, s.mlp_bias, options),
      .down = load_linear(
          weights, mlp + "down_proj", s.hidden_size, s.intermediate_size, s.mlp_bias, options),
      .mlp_out_norm = std::nullopt,
  };
  if (s.sandwich_norms) {
    layer.attention_out_norm = block_norm("post_attention_layernorm");
    layer.mlp_out_norm = block_norm("post_feedforward_layernorm");
  }
  return layer;
}

std::unique_ptr<Cache> ComposedDecoder::make_cache(const CacheOptions& options) const {
  std::vector<int> windows;
  for (const LayerSpec& layer : spec_.layers) {
    windows.push_back(layer.window);
  }
  return std::make_unique<ComposedCache>(windows, options, type_, spec_.kv_heads, spec_.head_dim);
}

size_t ComposedDecoder::weight_bytes() const {
  return bytes_;
}

std::vector<std::string> ComposedDecoder::notes() const {
  return notes_.lines();
}

mx::array ComposedDecoder::norm(const mx::array& x, const mx::array& weight) const {
  return mx::fast::rms_norm(x, weight, spec_.norm_eps);
}

// Sandwich-norm models run past f16's range in the residual stream; it is held at the last finite
// number there, as mlx-lm does.
mx::array ComposedDecoder::add_residual(const mx::array& h, const mx::array& r) const {
  if (!spec_.sandwich_norms || type_ != mx::float16) {
    return h + r;
  }
  const mx::array limit(65504.0f);
  const mx::array sum = mx::astype(h, mx::float32) + mx::astype(r, mx::float32);
  return mx::astype(mx::clip(sum, mx::negative(limit), limit), mx::float16);
}

// x [sequences * rows, heads * head_dim] -> [sequences, heads, rows, head_dim]; norm is applied to
// each head.
mx::array ComposedDecoder::heads_of(
    const mx::array& x,
    int sequences,
    int rows,
    int heads,
    const std::optional<mx::array>& norm) const {
  const bool single = rows == 1;  // then rows and heads need not change places
  mx::array y = mx::reshape(
      x,
      single ? mx::Shape{sequences, heads, 1, spec_.head_dim}
             : mx::Shape{sequences, rows, heads, spec_.head_dim});
  if (norm) {
    y = mx::fast::rms_norm(y, norm, spec_.norm_eps);
  }
  return single ? y : mx::transpose(y, {0, 2, 1, 3});
}

// [sequences, heads, rows, head_dim] -> [sequences * rows, heads * head_dim]
mx::array ComposedDecoder::rows_of(const mx::array& attended) const {
  const int rows = attended.shape(0) * attended.shape(2);
  const mx::Shape shape{rows, spec_.heads * spec_.head_dim};
  return attended.shape(2) == 1 ? mx::reshape(attended, shape)
                                : mx::reshape(mx::transpose(attended, {0, 2, 1, 3}), shape);
}

// segment: the sequence that x is of, or the first one when all sequences share a call.
mx::array ComposedDecoder::rotate(const mx::array& x, int rope, size_t segment, Step& step) const {
  if (rope < 0) {
    return x;
  }
  const RopeSpec& spec = spec_.ropes[static_cast<size_t>(rope)];
  const mx::array& offset = step.offset(segment);
  const int64_t length = step.offsets[segment] + step.rows[segment];
  const mx::array* periods = &periods_[static_cast<size_t>(rope)];
  if (stretched(spec, length)) {
    const auto key = std::pair(rope, length);
    auto found = step.stretched.find(key);
    if (found == step.stretched.end()) {
      found = step.stretched.emplace(key, to_periods(inv_freq_at(spec, length))).first;
    }
    periods = &found->second;
  }
  return mx::fast::rope(
      x, spec.dims, /* traditional */ false, std::nullopt, 1.0f, offset, *periods);
}

// One sequence: q [1, heads, rows, head_dim], k and v [1, kv_heads, rows, head_dim], rotated.
mx::array ComposedDecoder::attend(
    const Layer& layer,
    size_t i,
    const mx::array& q,
    const mx::array& k,
    const mx::array& v,
    size_t segment,
    Step& step) const {
  ComposedCache& cache = *step.caches[segment];
  const AttentionMask& mask = step.mask(segment, i, layer.spec.window);
  KvPlanes rows = cache.keys().encode(k);
  for (mx::array& plane : cache.values().encode(v)) {
    rows.push_back(std::move(plane));
  }
  const KvPlanes planes = cache.layer(i).update(rows);
  float scale = attention_scale_;
  if (layer.spec.rope >= 0) {
    // cos and sin times a factor in both q and k: its square on their product.
    const float factor = spec_.ropes[static_cast<size_t>(layer.spec.rope)].attention_factor;
    scale *= factor * factor;
  }
  return mx::astype(quince::attend(q, planes, cache.keys(), cache.values(), scale, mask), type_);
}

mx::array ComposedDecoder::attention(
    const Layer& layer, size_t i, const mx::array& x, Step& step) const {
  const int heads = spec_.heads;
  const int kv_heads = spec_.kv_heads;
  const int rope = layer.spec.rope;
  const mx::array q = layer.q(x);
  const mx::array k = layer.k(x);
  const mx::array v = layer.v(x);
  const auto count = static_cast<int>(step.caches.size());
  if (count == 1 || step.one_row_each) {
    const int rows = count == 1 ? step.total : 1;
    const mx::array qs = rotate(heads_of(q, count, rows, heads, layer.q_norm), rope, 0, step);
    const mx::array ks = rotate(heads_of(k, count, rows, kv_heads, layer.k_norm), rope, 0, step);
    const mx::array vs = heads_of(v, count, rows, kv_heads, std::nullopt);
    if (count == 1) {
      return layer.o(rows_of(attend(layer, i, qs, ks, vs, 0, step)));
    }
    const auto qi = mx::split(qs, count, 0);
    const auto ki = mx::split(ks, count, 0);
    const auto vi = mx::split(vs, count, 0);
    std::vector<mx::array> out;
    for (size_t s = 0; s < step.caches.size(); ++s) {
      out.push_back(attend(layer, i, qi[s], ki[s], vi[s], s, step));
    }
    return layer.o(rows_of(mx::concatenate(std::move(out), 0)));
  }
  const mx::Shape borders(step.ends.begin(), step.ends.end() - 1);
  const auto qi = mx::split(q, borders, 0);
  const auto ki = mx::split(k, borders, 0);
  const auto vi = mx::split(v, borders, 0);
  std::vector<mx::array> out;
  for (size_t s = 0; s < step.caches.size(); ++s) {
    out.push_back(rows_of(attend(
        layer,
        i,
        rotate(heads_of(qi[s], 1, step.rows[s], heads, layer.q_norm), rope, s, step),
        rotate(heads_of(ki[s], 1, step.rows[s], kv_heads, layer.k_norm), rope, s, step),
        heads_of(vi[s], 1, step.rows[s], kv_heads, std::nullopt),
        s,
        step)));
  }
  return layer.o(mx::concatenate(std::move(out), 0));
}

mx::array ComposedDecoder::logits(const mx::array& h, const Batch& batch) const {
  mx::array rows = h;
  const std::vector<int>& wanted = batch.logit_rows;
  if (wanted.empty()) {
    // Whoever evaluates it has the caches computed. MLX's quantized products cannot do without
    // rows.
    const mx::array none = mx::slice(h, {0, 0}, {0, h.shape(1)});
    const int columns = batch.states ? spec_.hidden_size : spec_.vocab_size;
    return mx::astype(mx::reshape(none, {0, columns}), mx::float32);
  }
  if (static_cast<int>(wanted.size()) == h.shape(0)) {
    // all of them
  } else if (consecutive(wanted)) {
    const int first = wanted.front();
    rows = mx::slice(h, {first, 0}, {first + static_cast<int>(wanted.size()), h.shape(1)});
  } else {
    rows = mx::take(h, mx::array(wanted.begin(), {static_cast<int>(wanted.size())}, mx::int32), 0);
  }
  const mx::array states = norm(rows, *final_norm_);
  if (batch.states) {
    return mx::astype(states, mx::float32);
  }
  mx::array y = tables_.back().matmul(states);
  y = mx::astype(y, mx::float32);
  if (spec_.final_softcap > 0.0f) {
    const mx::array cap(spec_.final_softcap);
    y = mx::tanh(y / cap) * cap;
  }
  return y;
}

// Token numbers that come from outside are known already; those of the last step are not, and need
// no check: sampling chose them among the head's rows.
void ComposedDecoder::check(const Batch& batch) const {
  const mx::array& tokens = batch.tokens;
  if (tokens.status() == mx::array::Status::unscheduled || !tokens.is_available() ||
      tokens.dtype() != mx::int32) {
    return;
  }
  const auto* ids = tokens.data<int32_t>();
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int32_t id = ids[static_cast<int64_t>(i) * tokens.strides(0)];
    if (id < 0 || id >= spec_.vocab_size) {
      throw UserError("token {} is outside the model's vocabulary of {}", id, spec_.vocab_size);
    }
  }
}

mx::array ComposedDecoder::forward(const Batch& batch) {
  check(batch);
  Step step(batch);
  if (batch.tokens.ndim() != 1 || batch.tokens.shape(0) != step.total || step.total == 0) {
    throw std::logic_error("[ComposedDecoder] segments do not add up to the tokens");
  }
  for (const RopeSpec& rope : spec_.ropes) {
    step.one_row_each = step.one_row_each && !stretched(rope, step.longest);
  }
  mx::array h = tables_.front().take_rows(batch.tokens);
  if (spec_.embed_scale != 1.0f) {
    h = h * mx::array(spec_.embed_scale, type_);
  }
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    mx::array r = attention(layer, i, norm(h, layer.input_norm), step);
    h = add_residual(h, layer.attention_out_norm ? norm(r, *layer.attention_out_norm) : r);
    const mx::array x = norm(h, layer.mlp_norm);
    r = layer.down(activation_(layer.gate(x), layer.up(x)));
    h = add_residual(h, layer.mlp_out_norm ? norm(r, *layer.mlp_out_norm) : r);
  }
  return logits(h, batch);
}

std::unique_ptr<Decoder> make_composed_decoder(
    const DecoderSpec& spec, Weights& weights, const LoadOptions& options) {
  return std::make_unique<ComposedDecoder>(spec, weights, options);
}

}  // namespace quince
