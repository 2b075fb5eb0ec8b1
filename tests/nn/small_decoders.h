// Small decoders with random weights, built straight from a DecoderSpec.
#pragma once

#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <mlx/mlx.h>

#include "base/thread_pool.h"
#include "nn/decoder.h"
#include "nn/rope_scaling.h"
#include "weights/tensor.h"

namespace quince::test {

// Like Llama: grouped queries, tied embeddings.
inline DecoderSpec plain_spec() {
  DecoderSpec spec;
  spec.hidden_size = 96;
  spec.intermediate_size = 160;
  spec.heads = 6;
  spec.kv_heads = 2;
  spec.head_dim = 16;
  spec.vocab_size = 130;
  spec.context_length = 4096;
  spec.attention_scale = 0.25f;
  spec.tied_embeddings = true;
  RopeSpec rope;
  rope.dims = 16;
  rope.inv_freq = plain_inv_freq(10000.0, 16);
  rope.plain_base = 10000.0f;
  spec.ropes = {rope};
  spec.layers = {{0, 0}, {0, 0}, {0, 0}};
  return spec;
}

// Everything that a spec can switch on, odd sizes, layers of several kinds.
inline DecoderSpec rich_spec() {
  DecoderSpec spec = plain_spec();
  spec.heads = 4;
  spec.kv_heads = 2;
  spec.head_dim = 24;
  spec.embed_scale = 3.5f;
  spec.final_softcap = 12.0f;
  spec.activation = Activation::gelu_tanh;
  spec.norm_plus_one = true;
  spec.qk_norm = true;
  spec.qkv_bias = true;
  spec.o_bias = true;
  spec.mlp_bias = true;
  spec.sandwich_norms = true;
  spec.tied_embeddings = false;
  RopeSpec partial;
  partial.dims = 12;
  partial.inv_freq = plain_inv_freq(500.0, 12);
  RopeSpec whole;
  whole.dims = 24;
  whole.inv_freq = plain_inv_freq(10000.0, 24);
  spec.ropes = {whole, partial};
  spec.layers = {{0, 9}, {1, 0}, {-1, 0}, {0, 9}};
  return spec;
}

inline std::vector<float> random_floats(size_t n, uint32_t seed, float middle, float spread) {
  std::mt19937 random(seed);
  std::vector<float> values(n);
  for (float& value : values) {
    value = middle + spread * (static_cast<float>(random() >> 8) * 0x1p-23f - 1.0f);
  }
  return values;
}

// All tensors of the spec, f32.
inline std::vector<TensorView> random_tensors(const DecoderSpec& spec) {
  std::vector<TensorView> tensors;
  uint32_t seed = 1;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    size_t n = 1;
    for (const int64_t side : shape) {
      n *= static_cast<size_t>(side);
    }
    const bool norm = name.ends_with("norm.weight");
    const float spread = norm                     ? 0.3f
                         : name.ends_with("bias") ? 0.3f
                         : name.starts_with("model.embed")
                             ? 1.0f
                             : 2.0f / std::sqrt(static_cast<float>(shape.back()));
    const std::vector<float> values =
        random_floats(n, seed++, norm && !spec.norm_plus_one ? 1.0f : 0.0f, spread);
    std::vector<std::byte> bytes(n * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    tensors.push_back(make_tensor(name, TensorType::f32, std::move(shape), std::move(bytes)));
  };
  const auto linear = [&](const std::string& path, int rows, int columns, bool bias) {
    add(path + ".weight", {rows, columns});
    if (bias) {
      add(path + ".bias", {rows});
    }
  };
  const int hidden = spec.hidden_size;
  const int inner = spec.intermediate_size;
  add("model.embed_tokens.weight", {spec.vocab_size, hidden});
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const std::string at = "model.layers." + std::to_string(i) + ".";
    add(at + "input_layernorm.weight", {hidden});
    add(at + "post_attention_layernorm.weight", {hidden});
    if (spec.sandwich_norms) {
      add(at + "pre_feedforward_layernorm.weight", {hidden});
      add(at + "post_feedforward_layernorm.weight", {hidden});
    }
    linear(at + "self_attn.q_proj", spec.heads * spec.head_dim, hidden, spec.qkv_bias);
    linear(at + "self_attn.k_proj", spec.kv_heads * spec.head_dim, hidden, spec.qkv_bias);
    linear(at + "self_attn.v_proj", spec.kv_heads * spec.head_dim, hidden, spec.qkv_bias);
    linear(at + "self_attn.o_proj", hidden, spec.heads * spec.head_dim, spec.o_bias);
    if (spec.qk_norm) {
      add(at + "self_attn.q_norm.weight", {spec.head_dim});
      add(at + "self_attn.k_norm.weight", {spec.head_dim});
    }
    linear(at + "mlp.gate_proj", inner, hidden, spec.mlp_bias);
    linear(at + "mlp.up_proj", inner, hidden, spec.mlp_bias);
    linear(at + "mlp.down_proj", hidden, inner, spec.mlp_bias);
  }
  add("model.norm.weight", {hidden});
  if (!spec.tied_embeddings) {
    add("lm_head.weight", {spec.vocab_size, hidden});
  }
  return tensors;
}

inline std::unique_ptr<Decoder> make_small(
    const DecoderSpec& spec, std::vector<TensorView> tensors, KernelSet kernels, int threads = 2) {
  LoadOptions options;
  options.kernels = kernels;
  options.pool = std::make_shared<ThreadPool>(threads);
  Weights weights(std::move(tensors), "small decoder", {});
  auto decoder = make_decoder(spec, weights, options);
  weights.check_all_taken();
  return decoder;
}

inline std::vector<int32_t> some_tokens(int n, int vocab, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(static_cast<size_t>(n));
  for (int32_t& id : ids) {
    id = static_cast<int32_t>(random() % static_cast<uint32_t>(vocab));
  }
  return ids;
}

inline mlx::core::array token_array(const std::vector<int32_t>& ids) {
  return mlx::core::array(ids.begin(), {static_cast<int>(ids.size())}, mlx::core::int32);
}

inline std::vector<int> all_rows(size_t n) {
  std::vector<int> rows(n);
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

inline std::vector<float> floats_of(mlx::core::array logits) {
  logits = mlx::core::contiguous(logits);
  logits.eval();
  return {logits.data<float>(), logits.data<float>() + logits.size()};
}

// Logits of all rows of one sequence's next tokens.
inline std::vector<float> feed(Decoder& decoder, Cache& cache, const std::vector<int32_t>& ids) {
  return floats_of(decoder.forward(
      {token_array(ids), {{&cache, static_cast<int>(ids.size())}}, all_rows(ids.size())}));
}

}  // namespace quince::test
