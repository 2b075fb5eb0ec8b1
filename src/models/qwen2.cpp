// qwen2: Qwen2, Qwen2.5 and its coders, DeepSeek-R1 distills. Biases on q, k and v only.

#include "models/architectures.h"
#include "models/common.h"

namespace quince {

DecoderSpec make_qwen2(const Config& config, Weights& weights) {
  DecoderSpec spec = read_decoder_sizes(config, weights, /* head_dim */ 0, /* tied */ false);
  spec.activation = read_activation(config, "hidden_act", "silu");
  spec.qkv_bias = true;
  spec.ropes.push_back(read_rope(config, spec));
  apply_qwen_window(config, spec);
  return spec;
}

}  // namespace quince
