// The gated activation between an MLP's projections.
#pragma once

#include <functional>

#include <mlx/array.h>

#include "nn/decoder_spec.h"

namespace quince {

using GatedActivation =
    std::function<mlx::core::array(const mlx::core::array& gate, const mlx::core::array& up)>;

// activation(gate) * up. fused: as one kernel by mlx::core::compile, for GPUs (on a CPU that would
// start a C++ compiler at run time). Use on the thread that made it.
GatedActivation make_gated_activation(Activation activation, bool fused);

}  // namespace quince
