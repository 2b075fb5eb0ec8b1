// Every tensor that a decoder of a spec holds, taken and let go: whether a checkpoint is complete
// and its shapes are right can be told so without reading any of its data.
#pragma once

#include "nn/decoder_spec.h"
#include "weights/weights.h"

namespace quince {

// Throws the UserError that make_decoder() would throw for a tensor that is missing or misshapen.
void take_decoder_tensors(const DecoderSpec& spec, Weights& weights);

}  // namespace quince
