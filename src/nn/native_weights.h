// The weights of a decoder as the native CPU kernels hold them: matrices packed, side by side where
// their formats agree, norms as f32 with gemma's 1 already added. Built once, then read by all
// threads.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/packed.h"
#include "nn/decoder_spec.h"
#include "quant/matrix_source.h"
#include "quant/options.h"
#include "weights/weights.h"

namespace quince {

// Several linear layers that read the same input; their outputs lie one behind the other.
struct NativeLinear {
  std::vector<kernels::PackedMatrix> parts;  // one when all formats agree
  std::vector<float> bias;                   // [rows], empty without
  int64_t rows = 0;
  int64_t columns = 0;
};

struct NativeLayer {
  int rope = -1;   // index into DecoderSpec::ropes, -1: none
  int window = 0;  // LayerSpec::window
  std::vector<float> input_norm;
  NativeLinear qkv;                   // [q heads, k heads, v heads]
  std::vector<float> q_norm, k_norm;  // [head_dim], empty without
  NativeLinear o;
  std::vector<float> attention_out_norm;  // sandwich norms only
  std::vector<float> mlp_norm;
  NativeLinear gate_up;  // [gate, up]
  NativeLinear down;
  std::vector<float> mlp_out_norm;  // sandwich norms only
};

struct NativeWeights {
  DecoderSpec spec;
  std::vector<kernels::PackedMatrix> tables;  // embedding, then the head unless tied
  std::vector<NativeLayer> layers;
  std::vector<float> final_norm;
  bool all_f32 = false;  // the checkpoint's matrices are f32: caches keep f32 too
  size_t bytes = 0;
  std::vector<std::string> notes;

  const kernels::PackedMatrix& embedding() const {
    return tables.front();
  }
  const kernels::PackedMatrix& head() const {
    return tables.back();
  }
};

// Takes all tensors that nn/decoder.h names. Throws UserError for what is missing or misshapen.
NativeWeights load_native_weights(
    const DecoderSpec& spec, Weights& weights, const LoadOptions& options);

}  // namespace quince
