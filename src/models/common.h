// What several architectures' config files and checkpoints share.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "models/config.h"
#include "nn/decoder_spec.h"
#include "weights/weights.h"

namespace quince {

// Sizes, norm epsilon, activation and tie of a llama-like config; layers plain with rope 0, ropes
// empty. head_dim: what the architecture takes when the config does not say; 0: hidden / heads.
DecoderSpec read_decoder_sizes(
    const Config& config, const Weights& weights, int head_dim, bool tied);

Activation read_activation(const Config& config, std::string_view key, std::string_view otherwise);

// "partial_rotary_factor" of head_dim; even.
int rotated_dims(const Config& config, const DecoderSpec& spec);

// The rotary settings of a config with one rope for all layers: rope_theta with rope_scaling, or
// rope_parameters.
RopeSpec read_rope(const Config& config, const DecoderSpec& spec);

// Which layers are windowed, by "layer_types" (one entry a layer). Nothing when the config has
// none.
std::optional<std::vector<bool>> read_layer_types(const Config& config, size_t layers);

// qwen2 and qwen3: with "use_sliding_window", layers from "max_window_layers" on are windowed,
// unless "layer_types" says which.
void apply_qwen_window(const Config& config, DecoderSpec& spec);

// Renames what checkpoints spell differently to the names in nn/decoder.h, and drops what the
// decoder has no use for: rotary buffers, the vision parts of a multimodal checkpoint.
void repair_names(Weights& weights);

// A tied model may carry its head all the same.
void drop_spare_head(Weights& weights);

}  // namespace quince
