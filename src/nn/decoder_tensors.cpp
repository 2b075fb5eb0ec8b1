#include "nn/decoder_tensors.h"

#include <string>

#include <fmt/format.h>

#include "quant/matrix_source.h"

namespace quince {

namespace {

class Taker {
 public:
  Taker(const DecoderSpec& spec, Weights& weights) : spec_(spec), weights_(weights) {}

  void run() {
    take_matrix(weights_, "model.embed_tokens", spec_.vocab_size, spec_.hidden_size);
    for (size_t i = 0; i < spec_.layers.size(); ++i) {
      layer(fmt::format("model.layers.{}.", i));
    }
    norm("model.norm", spec_.hidden_size);
    if (!spec_.tied_embeddings) {
      take_matrix(weights_, "lm_head", spec_.vocab_size, spec_.hidden_size);
    }
  }

 private:
  void norm(const std::string& path, int size) {
    weights_.take(path + ".weight", {size});
  }

  void linear(const std::string& path, int rows, int columns, bool bias) {
    take_matrix(weights_, path, rows, columns);
    if (bias) {
      weights_.take(path + ".bias", {rows});
    }
  }

  void layer(const std::string& at) {
    const DecoderSpec& s = spec_;
    const int q_size = s.heads * s.head_dim;
    const int kv_size = s.kv_heads * s.head_dim;
    const std::string attn = at + "self_attn.";
    norm(at + "input_layernorm", s.hidden_size);
    linear(attn + "q_proj", q_size, s.hidden_size, s.qkv_bias);
    linear(attn + "k_proj", kv_size, s.hidden_size, s.qkv_bias);
    linear(attn + "v_proj", kv_size, s.hidden_size, s.qkv_bias);
    if (s.qk_norm) {
      norm(attn + "q_norm", s.head_dim);
      norm(attn + "k_norm", s.head_dim);
    }
    linear(attn + "o_proj", s.hidden_size, q_size, s.o_bias);
    norm(at + "post_attention_layernorm", s.hidden_size);
    if (s.sandwich_norms) {
      norm(at + "pre_feedforward_layernorm", s.hidden_size);
      norm(at + "post_feedforward_layernorm", s.hidden_size);
    }
    const std::string mlp = at + "mlp.";
    linear(mlp + "gate_proj", s.intermediate_size, s.hidden_size, s.mlp_bias);
    linear(mlp + "up_proj", s.intermediate_size, s.hidden_size, s.mlp_bias);
    linear(mlp + "down_proj", s.hidden_size, s.intermediate_size, s.mlp_bias);
  }

  const DecoderSpec& spec_;
  Weights& weights_;
};

}  // namespace

void take_decoder_tensors(const DecoderSpec& spec, Weights& weights) {
  Taker(spec, weights).run();
}

}  // namespace quince
