// qwen3: Qwen3 dense models, their embedding and rerank variants. Norms on q and k heads.

#include "models/architectures.h"
#include "models/common.h"

namespace quince {

DecoderSpec make_qwen3(const Config& config, Weights& weights) {
  DecoderSpec spec = read_decoder_sizes(config, weights, /* head_dim */ 128, /* tied */ false);
  spec.activation = read_activation(config, "hidden_act", "silu");
  spec.qk_norm = true;
  spec.qkv_bias = config.flag("attention_bias", false);
  spec.o_bias = spec.qkv_bias;
  spec.ropes.push_back(read_rope(config, spec));
  apply_qwen_window(config, spec);
  return spec;
}

}  // namespace quince
