// Builds a DecoderSpec on top of either kernel set. Tensor names are Hugging Face's:
//   model.embed_tokens.weight [V, H]     model.norm.weight [H]     lm_head.weight [V, H] unless
//   tied model.layers.N.{input_layernorm,post_attention_layernorm}.weight
//   model.layers.N.self_attn.{q_proj,k_proj,v_proj,o_proj}.{weight,bias}, .q_norm/.k_norm.weight
//   model.layers.N.mlp.{gate_proj,up_proj,down_proj}.{weight,bias}
//   sandwich: .post_attention_layernorm follows attention, .pre_feedforward_layernorm and
//   .post_feedforward_layernorm stand around the MLP.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/batch.h"
#include "nn/decoder_spec.h"
#include "quant/options.h"
#include "weights/weights.h"

namespace quince {

class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual std::unique_ptr<Cache> make_cache(const CacheOptions& options) const = 0;
  // See Model::forward.
  virtual mlx::core::array forward(const Batch& batch) = 0;
  virtual size_t weight_bytes() const = 0;
  virtual std::vector<std::string> notes() const = 0;
};

// nn/composed_decoder.cpp: MLX operations only; what Metal runs and what tests compare with.
std::unique_ptr<Decoder> make_composed_decoder(const DecoderSpec&, Weights&, const LoadOptions&);
// nn/native_decoder.cpp: one MLX primitive per half layer around our CPU kernels.
std::unique_ptr<Decoder> make_native_decoder(const DecoderSpec&, Weights&, const LoadOptions&);
// Picks by options.kernels.
std::unique_ptr<Decoder> make_decoder(const DecoderSpec&, Weights&, const LoadOptions&);

}  // namespace quince
