// The processor that MLX computes on.
#pragma once

#include <string>

namespace quince {

enum class DeviceKind { cpu, gpu };

bool gpu_available();              // this build of MLX has a GPU backend and the machine such a GPU
std::string gpu_name();            // "" when there is none
void use_device(DeviceKind kind);  // default device of all later MLX work, any thread

// Largest number of bytes that MLX's arrays have held so far (on a GPU not part of the resident
// set).
size_t peak_device_memory();

}  // namespace quince
