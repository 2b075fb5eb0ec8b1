// gemma3_text: Gemma 3 text models, 270M to 27B, and the text part of multimodal gemma3
// checkpoints. Five windowed layers with a rope of their own to each full one, norms on both sides
// of attention and MLP, embeddings scaled by sqrt(hidden_size).

#include <cmath>

#include <mlx/types/half_types.h>

#include "base/error.h"
#include "models/architectures.h"
#include "models/common.h"
#include "nn/rope_scaling.h"

namespace quince {
namespace {

namespace json = boost::json;

constexpr int kGlobal = 0;  // indices into DecoderSpec::ropes
constexpr int kLocal = 1;

// transformers keeps the factor in the type of the embedding.
float embedding_scale(const Config& config, int hidden_size) {
  const auto scale = static_cast<float>(std::sqrt(static_cast<double>(hidden_size)));
  const std::string type = config.text("dtype", config.text("torch_dtype", ""));
  if (type == "bfloat16") {
    return static_cast<float>(static_cast<mlx::core::bfloat16_t>(scale));
  }
  if (type == "float16") {
    return static_cast<float>(static_cast<mlx::core::float16_t>(scale));
  }
  return scale;
}

// "rope_parameters" of transformers 5 has an object for each kind of layer; before, there were two
// bases and a scaling of the global rope.
const json::object* rope_object(const Config& config, std::string_view layer_type) {
  const json::object* parameters = config.maybe_object("rope_parameters");
  if (!parameters) {
    return layer_type == "full_attention" ? config.maybe_object("rope_scaling") : nullptr;
  }
  const json::value* own = parameters->if_contains(layer_type);
  if (own && !own->is_null() && !own->is_object()) {
    config.refuse("rope_parameters", "an object for each layer type");
  }
  return own && own->is_object() ? &own->get_object() : nullptr;
}

RopeSpec read_gemma_rope(
    const Config& config, const DecoderSpec& spec, std::string_view layer_type, double theta) {
  return make_rope(
      {.dims = rotated_dims(config, spec),
       .theta = theta,
       .max_positions = spec.context_length,
       .scaling = rope_object(config, layer_type),
       .source = config.source()});
}

void refuse_unsupported(const Config& config) {
  if (config.has("attn_logit_softcapping")) {
    config.refuse("attn_logit_softcapping", "null: attention soft caps are not supported");
  }
  if (config.flag("use_bidirectional_attention", false)) {
    config.refuse("use_bidirectional_attention", "false: only causal text generation is supported");
  }
}

}  // namespace

DecoderSpec make_gemma3(const Config& config, Weights& weights) {
  refuse_unsupported(config);
  DecoderSpec spec = read_decoder_sizes(config, weights, /* head_dim */ 256, /* tied */ true);
  spec.activation = read_activation(config, "hidden_activation", "gelu_pytorch_tanh");
  spec.norm_plus_one = true;
  spec.qk_norm = true;
  spec.sandwich_norms = true;
  spec.qkv_bias = config.flag("attention_bias", false);
  spec.o_bias = spec.qkv_bias;
  spec.attention_scale =
      static_cast<float>(1.0 / std::sqrt(config.positive("query_pre_attn_scalar", 256.0)));
  spec.embed_scale = embedding_scale(config, spec.hidden_size);
  spec.final_softcap =
      static_cast<float>(config.maybe_positive("final_logit_softcapping").value_or(0.0));

  spec.ropes.resize(2);
  spec.ropes[kGlobal] =
      read_gemma_rope(config, spec, "full_attention", config.positive("rope_theta", 1e6));
  spec.ropes[kLocal] = read_gemma_rope(
      config, spec, "sliding_attention", config.positive("rope_local_base_freq", 10000.0));

  const std::optional<int> window = config.maybe_count("sliding_window", 1 << 30);
  const int pattern = config.maybe_count("sliding_window_pattern", 4096)
                          .value_or(config.count("_sliding_window_pattern", 4096, 6));
  const auto windowed = read_layer_types(config, spec.layers.size());
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const bool local = windowed ? (*windowed)[i] : (static_cast<int>(i) + 1) % pattern != 0;
    if (local && !window) {
      config.refuse("sliding_window", "a number of tokens");
    }
    spec.layers[i] = local ? LayerSpec{kLocal, *window} : LayerSpec{kGlobal, 0};
  }
  return spec;
}

}  // namespace quince
