// The standard pre-norm decoder stack as data: everything in which llama, mistral, qwen2, qwen3 and
// gemma3_text differ from each other. A model file fills one in from its config; nn/decoder.h
// builds it.
#pragma once

#include <cstdint>
#include <vector>

namespace quince {

// Rotary embedding of one kind of layer. Frequencies are always explicit, whatever scaling made
// them (linear, llama3, yarn: nn/rope_scaling.h), so that all kernels agree to the bit.
struct RopeSpec {
  int dims = 0;                   // rotated dimensions of a head, even; the rest pass through
  std::vector<float> inv_freq;    // [dims / 2], radians per position
  float attention_factor = 1.0f;  // cos and sin are multiplied by it (yarn's mscale)
  // Plain rotary embedding with this base when > 0; then inv_freq[i] = base^(-2i/dims).
  float plain_base = 0.0f;
  // "dynamic" NTK scaling: past original_length the base grows with the sequence length.
  float dynamic_factor = 0.0f;  // 0: off
  int original_length = 0;
};

struct LayerSpec {
  int rope = 0;    // index into DecoderSpec::ropes; -1: none
  int window = 0;  // attends to the last `window` positions, itself included; 0: all
};

enum class Activation : uint8_t { silu, gelu_tanh, gelu };

struct DecoderSpec {
  int hidden_size = 0;
  int intermediate_size = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int vocab_size = 0;
  int context_length = 0;
  float norm_eps = 1e-6f;
  float attention_scale = 0.0f;  // usually head_dim^-0.5
  float embed_scale =
      1.0f;  // gemma: sqrt(hidden_size), rounded to bf16 as transformers does for bf16 models
  float final_softcap = 0.0f;  // 0: off
  Activation activation = Activation::silu;
  bool norm_plus_one = false;  // gemma: weight stands for 1 + weight
  bool qk_norm = false;        // self_attn.q_norm / k_norm over head_dim
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool sandwich_norms = false;  // gemma: norms after attention and after the MLP too
  bool tied_embeddings = false;
  std::vector<RopeSpec> ropes;
  std::vector<LayerSpec> layers;
};

}  // namespace quince
