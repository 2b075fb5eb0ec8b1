// llama: Llama 2 to 3.3, SmolLM2, TinyLlama, Yi and most fine-tunes; mistral: the same with a
// window.

#include "models/architectures.h"
#include "models/common.h"

namespace quince {

DecoderSpec make_llama(const Config& config, Weights& weights) {
  DecoderSpec spec = read_decoder_sizes(config, weights, /* head_dim */ 0, /* tied */ false);
  spec.activation = read_activation(config, "hidden_act", "silu");
  // GGUF has no field for biases: there the tensors tell.
  const bool q_bias = weights.has("model.layers.0.self_attn.q_proj.bias");
  const bool o_bias = weights.has("model.layers.0.self_attn.o_proj.bias");
  spec.qkv_bias = config.flag("attention_bias", q_bias);
  spec.o_bias = config.maybe_flag("attention_bias") ? spec.qkv_bias : o_bias;
  spec.mlp_bias = config.flag("mlp_bias", weights.has("model.layers.0.mlp.gate_proj.bias"));
  spec.ropes.push_back(read_rope(config, weights, spec));

  const std::optional<int> window = config.maybe_count("sliding_window", 1 << 30);
  const auto windowed = read_layer_types(config, spec.layers.size());
  const bool everywhere = !windowed && config.text("model_type", "") == "mistral";
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (everywhere ? window.has_value() : windowed && (*windowed)[i]) {
      if (!window) {
        config.refuse(
            "sliding_window", "a number of tokens, as \"layer_types\" has sliding layers");
      }
      spec.layers[i].window = *window;
    }
  }
  return spec;
}

}  // namespace quince
