// --threads, --device, --kernels and their relatives: what a model is computed with. Shared by run
// and bench.
#pragma once

#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "quant/options.h"
#include "system/device.h"

namespace quince::cli {

struct ComputeFlags {
  std::optional<std::string> device;   // cpu, gpu
  std::optional<std::string> kernels;  // mlx, native
  std::optional<std::string> dtype;    // f32, f16, bf16
  std::optional<int> threads;
  std::optional<int> gpu_layers;  // llama.cpp's -ngl
  bool dequantize = false;
};

void add_compute_flags(CLI::App& app, ComputeFlags& flags);

struct Compute {
  DeviceKind device = DeviceKind::cpu;
  LoadOptions load;  // with its pool
};

// Decides what was left open: a GPU when there is one, and native kernels on the CPU. Throws
// UserError when the flags contradict each other or the machine.
Compute plan_compute(const ComputeFlags& flags);
// The decision itself, apart for tests.
struct ComputeChoice {
  DeviceKind device = DeviceKind::cpu;
  KernelSet kernels = KernelSet::native;
};
ComputeChoice choose_compute(const ComputeFlags& flags, bool has_gpu);

}  // namespace quince::cli
