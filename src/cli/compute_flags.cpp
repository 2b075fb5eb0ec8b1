#include "cli/compute_flags.h"

#include <algorithm>

#include "cli/args.h"

namespace quince::cli {

namespace {

constexpr int kMostThreads = 1024;

}  // namespace

void add_compute_flags(CLI::App& app, ComputeFlags& flags) {
  FlagGroup group(app, "Machine");
  group.value(
      "-t,--threads",
      "N",
      "Threads to compute with (default: this machine's performance cores)",
      [&flags](const std::string& flag, const std::string& value) {
        flags.threads = static_cast<int>(parse_integer(flag, value, 1, kMostThreads));
      });
  group.choice(
      "--device",
      {"cpu", "gpu"},
      flags.device,
      "Where to compute (default: the GPU if there is one)");
  group.choice(
      "--kernels",
      {"native", "mlx"},
      flags.kernels,
      "Quince's own CPU kernels, or MLX's operations (default: native on the CPU, mlx on a GPU)");
  group.choice(
      "--dtype",
      {"f32", "f16", "bf16"},
      flags.dtype,
      "With --kernels mlx: type of activations and plain weights (default: the model's own)");
  group.on(
      "--dequantize",
      flags.dequantize,
      "With --kernels mlx: turn quantized weights into plain ones while loading");

  CLI::Option* layers = app.add_option_function<std::string>(
      "--n-gpu-layers,--gpu-layers", [&flags](const std::string& value) {
        flags.gpu_layers = static_cast<int>(
            parse_integer("--n-gpu-layers", value, -1, std::numeric_limits<int>::max()));
      });
  layers->group("");
  accept_flag(app, "--threads-batch", true, "--threads counts for prompts and for answers");
  accept_flag(app, "--flash-attn", true, "attention is always computed in this form");
  accept_flag(app, "--trust-remote-code", false, "nothing from a model's repository is ever run");
  accept_flag(app, "--mmap", false, "model files are always mapped");
  refuse_flag(
      app,
      "--no-mmap",
      false,
      "model files are always mapped; their pages are given back as they are packed");
  refuse_flag(app, "--mlock", false, "locking weights in memory is not offered yet");
  refuse_flag(app, "--lora,--adapter-path", true, "LoRA adapters are not offered yet");
  refuse_flag(app, "--draft-model,--num-draft-tokens", true, "drafting is not offered yet");
  refuse_flag(
      app, "--split-mode,--tensor-split,--main-gpu", true, "one device computes the whole model");
}

ComputeChoice choose_compute(const ComputeFlags& flags, bool has_gpu) {
  bool wants_gpu = flags.device ? *flags.device == "gpu" : has_gpu && flags.kernels != "native";
  std::string why = "--device gpu";
  if (!flags.device && flags.gpu_layers) {
    // One device computes all layers: any positive number means the GPU, where there is one.
    wants_gpu = *flags.gpu_layers != 0 && has_gpu && flags.kernels != "native";
  }
  if (wants_gpu && !has_gpu) {
    throw UserError("{}: MLX finds no GPU on this machine; use --device cpu", why);
  }
  if (wants_gpu && flags.kernels == "native") {
    throw UserError(
        "--kernels native: these run on the CPU only; use --kernels mlx or --device cpu");
  }
  ComputeChoice choice;
  choice.device = wants_gpu ? DeviceKind::gpu : DeviceKind::cpu;
  bool mlx = flags.kernels ? *flags.kernels == "mlx" : wants_gpu;
  choice.kernels = mlx ? KernelSet::mlx : KernelSet::native;
  if (!mlx && flags.dtype) {
    throw UserError(
        "--dtype {}: the native kernels choose their own types; use it with --kernels mlx",
        *flags.dtype);
  }
  if (!mlx && flags.dequantize) {
    throw UserError(
        "--dequantize: the native kernels keep quantized weights; use it with --kernels mlx");
  }
  return choice;
}

Compute plan_compute(const ComputeFlags& flags) {
  ComputeChoice choice = choose_compute(flags, gpu_available());
  Compute compute;
  compute.device = choice.device;
  compute.load.kernels = choice.kernels;
  compute.load.dequantize = flags.dequantize;
  if (flags.dtype) {
    compute.load.dtype = *flags.dtype == "f32"   ? mlx::core::float32
                         : *flags.dtype == "f16" ? mlx::core::float16
                                                 : mlx::core::bfloat16;
  }
  compute.load.pool =
      std::make_shared<ThreadPool>(flags.threads.value_or(ThreadPool::default_size()));
  return compute;
}

}  // namespace quince::cli
