// --threads, --device, --kernels and their relatives: what a model is computed with. Shared by run
// and bench.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cache/cache.h"
#include "engine/engine.h"
#include "quant/options.h"
#include "system/device.h"

namespace CLI {
class App;
}  // namespace CLI

namespace quince::cli {

struct ComputeFlags {
  std::optional<std::string> device;   // cpu, gpu
  std::optional<std::string> kernels;  // mlx, native
  std::optional<std::string> dtype;    // f32, f16, bf16
  std::optional<int> threads;
  std::optional<int> gpu_layers;  // llama.cpp's -ngl
  bool dequantize = false;
  std::optional<std::string> cache_type_k;  // f32, f16, bf16, q8_0, q4_0
  std::optional<std::string> cache_type_v;
  std::optional<std::string> kv_bits;  // mlx-lm's: 8, 4
  std::optional<int> kv_group;         // likewise
  bool lock_memory = false;
  bool read_files = false;
  std::optional<std::string> cache_dir;
  std::optional<double> cache_disk_gb;
  bool deterministic = false;
};

void add_compute_flags(CLI::App& app, ComputeFlags& flags);

// --num-draft-tokens and --draft-model: for commands that answer requests.
struct DraftFlags {
  std::optional<int> tokens;
  std::optional<std::string> model;
};

void add_draft_flags(CLI::App& app, DraftFlags& flags);

struct Compute {
  DeviceKind device = DeviceKind::cpu;
  LoadOptions load;    // with its pool
  CacheOptions cache;  // formats
  DiskOptions disk;    // of what memory has no room for
  bool deterministic = false;
  bool lock_memory = false;
  bool read_files = false;         // see read_tensors()
  std::vector<std::string> notes;  // lines the user should see
};

// Decides what was left open: a GPU when there is one, and native kernels on the CPU. Throws
// UserError when the flags contradict each other or the machine.
Compute plan_compute(const ComputeFlags& flags);
// Once the model is there, with lock_memory; a line tells why it could not be done.
void lock_weights(const Compute& compute, std::vector<std::string>& notes);
void print_lock_notes(const Compute& compute);  // does the same, and prints the line
// What of it the engine decides: all but the weights.
void set_engine(const Compute& compute, EngineOptions& options);
// Opens the draft model, if there is one; the engine loads it. Throws UserError.
void set_drafting(const DraftFlags& flags, const Compute& compute, EngineOptions& options);
// The decision itself, apart for tests.
struct ComputeChoice {
  DeviceKind device = DeviceKind::cpu;
  KernelSet kernels = KernelSet::native;
};
DiskOptions disk_options(const ComputeFlags& flags);
// For EngineOptions::log: a line on standard error.
void print_note(const std::string& line);
// Formats of keys and values, likewise.
CacheOptions cache_formats(const ComputeFlags& flags);
ComputeChoice choose_compute(const ComputeFlags& flags, bool has_gpu);

}  // namespace quince::cli
