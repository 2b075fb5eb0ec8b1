// The architectures, each in its own file. All are standard decoder stacks: from the config and a
// look at the tensor names they make a DecoderSpec. They run after repair_names() and may take or
// drop tensors that only they know.
#pragma once

#include <span>
#include <string_view>

#include "models/config.h"
#include "nn/decoder_spec.h"
#include "weights/weights.h"

namespace quince {

DecoderSpec make_llama(const Config& config, Weights& weights);  // also mistral
DecoderSpec make_qwen2(const Config& config, Weights& weights);
DecoderSpec make_qwen3(const Config& config, Weights& weights);
DecoderSpec make_gemma3(const Config& config, Weights& weights);

struct Architecture {
  std::string_view model_type;  // as in config.json
  DecoderSpec (*make)(const Config& config, Weights& weights);
};

// Sorted by name.
std::span<const Architecture> architectures();

}  // namespace quince
