// llama: Llama 2 to 3.3, SmolLM2, TinyLlama, Yi and most fine-tunes; mistral: the same with a
// window.

#include "models/architectures.h"
#include "models/common.h"

namespace quince {

DecoderSpec make_llama(const Config& config, Weights& weights) {
  DecoderSpec spec = read_decoder_sizes(config, weights, /* head_dim */ 0, /* tied */ false);
  spec.activation = read_activation(config, "hidden_act", "silu");
  spec.qkv_bias = config.flag("attention_bias", false);
  // Some checkpoints with biases on q, k and v pass for llama and have none on o.
  spec.o_bias = spec.qkv_bias && weights.has("model.layers.0.self_attn.o_proj.bias");
  spec.mlp_bias = config.flag("mlp_bias", false);
  spec.ropes.push_back(read_rope(config, spec));

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
