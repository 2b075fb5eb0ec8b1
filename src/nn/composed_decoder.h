// The decoder stack as a graph of MLX operations: what Metal and CUDA run, and on CPU the oracle
// that native kernels are compared with. It asks MLX's fast operations for all they offer and
// builds no more primitives for a step than mlx-lm does (tests/models/graph_test.cpp counts).
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <mlx/array.h>

#include "cache/composed_cache.h"
#include "nn/activation.h"
#include "nn/decoder.h"
#include "quant/format_notes.h"
#include "quant/matrix_weight.h"

namespace quince {

class ComposedDecoder : public Decoder {
 public:
  ComposedDecoder(const DecoderSpec& spec, Weights& weights, const LoadOptions& options);

  std::unique_ptr<Cache> make_cache(const CacheOptions& options) const override;
  mlx::core::array forward(const Batch& batch) override;
  size_t weight_bytes() const override;
  std::vector<std::string> notes() const override;

 private:
  struct Linear {
    MatrixWeight weight;
    std::optional<mlx::core::array> bias;
    mlx::core::array operator()(const mlx::core::array& x) const {
      return weight.matmul(x, bias);
    }
  };
  struct Layer {
    LayerSpec spec;
    mlx::core::array input_norm;
    Linear q, k, v, o;
    std::optional<mlx::core::array> q_norm, k_norm;      // [head_dim]
    std::optional<mlx::core::array> attention_out_norm;  // sandwich norms only
    mlx::core::array mlp_norm;
    Linear gate, up, down;
    std::optional<mlx::core::array> mlp_out_norm;  // sandwich norms only
  };
  struct Step;  // what the layers of one forward share: offsets, frequencies, masks

  Layer load_layer(Weights& weights, int i, const LoadOptions& options);
  Linear load_linear(
      Weights& weights,
      const std::string& path,
      int rows,
      int columns,
      bool bias,
      const LoadOptions& options);
  mlx::core::array load_norm(
      Weights& weights, const std::string& path, int size, const LoadOptions& options);

  mlx::core::array attention(
      const Layer& layer, size_t i, const mlx::core::array& x, Step& step) const;
  mlx::core::array attend(
      const Layer& layer,
      size_t i,
      const mlx::core::array& q,
      const mlx::core::array& k,
      const mlx::core::array& v,
      size_t segment,
      Step& step) const;
  mlx::core::array heads_of(
      const mlx::core::array& x,
      int sequences,
      int rows,
      int heads,
      const std::optional<mlx::core::array>& norm) const;
  mlx::core::array rows_of(const mlx::core::array& attended) const;
  mlx::core::array rotate(const mlx::core::array& x, int rope, size_t segment, Step& step) const;
  mlx::core::array norm(const mlx::core::array& x, const mlx::core::array& weight) const;
  mlx::core::array add_residual(const mlx::core::array& h, const mlx::core::array& r) const;
  mlx::core::array logits(const mlx::core::array& h, const Batch& batch) const;
  void check(const Batch& batch) const;

  DecoderSpec spec_;
  mlx::core::Dtype type_;  // of activations
  FormatNotes notes_;
  size_t bytes_ = 0;
  std::vector<MatrixWeight> tables_;  // embedding, then the head unless tied
  std::vector<Layer> layers_;
  std::optional<mlx::core::array> final_norm_;
  std::vector<mlx::core::array>
      periods_;  // [dims / 2] a rope: 1 / inv_freq, as fast::rope takes them
  float attention_scale_;
  GatedActivation activation_;
};

}  // namespace quince
