#include "cli/compute_flags.h"

#include <algorithm>
#include <thread>

#include "cli/args.h"
#include "cli/memory_plan.h"
#include "cli/say.h"
#include "cli/terminal.h"
#include "models/model.h"
#include "system/memory.h"
#include "weights/model_files.h"

namespace quince::cli {

namespace {

constexpr int kMostThreads = 1024;
// llama-server's words for --mlock and --no-mmap; false: it is none of them.
bool find_load_mode(const std::string& mode, ComputeFlags& flags) {
  const bool locks = mode == "mlock" || mode == "mmap+mlock";
  const bool reads = mode == "none" || mode == "mlock";
  flags.lock_memory = flags.lock_memory || locks;
  flags.read_files = flags.read_files || reads;
  return locks || reads || mode == "auto" || mode == "mmap";
}

constexpr int kDraftTokens = 7;  // with the one that is sampled, rows that kernels take together

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
  group.value(
      "--device",
      "cpu|gpu",
      "Where to compute (default: the GPU if there is one)",
      [&flags](const std::string& flag, const std::string& value) {
        if (value != "cpu" && value != "gpu" && value != "none") {
          throw UserError("{} {}: want one of cpu, gpu", flag, value);
        }
        flags.device = value == "none" ? "cpu" : value;  // of llama.cpp: nothing is offloaded
      });
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
  const std::vector<std::string> formats{"f32", "f16", "bf16", "q8_0", "q4_0"};
  group.choice(
      "--cache-type-k",
      formats,
      flags.cache_type_k,
      "Format of cached keys (default: f16, or f32 for f32 models)");
  group.choice("--cache-type-v", formats, flags.cache_type_v, "Format of cached values");
  group.choice("--kv-bits", {"8", "4"}, flags.kv_bits, "Both as q8_0, or q4_0");
  FlagGroup quiet(app, "");
  quiet.value(
      "--kv-group-size", "N", "", [&flags](const std::string& flag, const std::string& value) {
        flags.kv_group = static_cast<int>(parse_integer(flag, value, 1, 1 << 20));
      });
  quiet.value(
      "--quantized-kv-start", "N", "", [](const std::string& flag, const std::string& value) {
        if (parse_integer(flag, value, 0, std::numeric_limits<int64_t>::max()) != 0) {
          throw UserError(
              "{} {}: with --kv-bits keys and values are coded from the first token on, which is 0",
              flag,
              value);
        }
      });
  group.text(
      "--cache-dir",
      "DIR",
      flags.cache_dir,
      "Keep what was computed of prompts there too: the next start finds it");
  group.value(
      "--cache-disk-gb",
      "N",
      "With --cache-dir: its size at most, in GB, of all models together (default: 10)",
      [&flags](const std::string& flag, const std::string& value) {
        flags.cache_disk_gb = parse_real(flag, value, 0.001, 1e6);
      });

  group.on(
      "--deterministic",
      flags.deterministic,
      "Answers do not depend on what else runs, to the bit; slower");

  group.on("--mlock", flags.lock_memory, "Keep the weights from being swapped out");
  group.on(
      "--no-mmap",
      flags.read_files,
      "Read the model's files into memory and do not map them: takes their size more while "
      "loading");
  quiet.value(
      "--load-mode", "MODE", "", [&flags](const std::string& flag, const std::string& value) {
        if (!find_load_mode(value, flags)) {
          throw UserError("{} {}: want auto, none, mmap, mlock or mmap+mlock", flag, value);
        }
      });
  quiet.value(
      "--n-gpu-layers,--gpu-layers",
      "N",
      "",
      [&flags](const std::string& flag, const std::string& value) {
        constexpr int64_t kMost = std::numeric_limits<int>::max();
        if (value == "auto") {
          flags.gpu_layers.reset();
        } else {
          flags.gpu_layers =
              value == "all" ? -1 : static_cast<int>(parse_integer(flag, value, -1, kMost));
        }
      });
  accept_flag(app, "--threads-batch", true, "--threads counts for prompts and for answers");
  switch_flag(app, "--flash-attn", true, "attention is always computed in this form");
  accept_flag(app, "--trust-remote-code", false, "nothing from a model's repository is ever run");
  quiet.off("--mmap", flags.read_files);
  refuse_flag(app, "--lora,--adapter-path", true, "LoRA adapters are not offered yet");
  refuse_flag(
      app, "--split-mode,--tensor-split,--main-gpu", true, "one device computes the whole model");
}

void add_draft_flags(CLI::App& app, DraftFlags& flags) {
  FlagGroup group(app, "Machine");
  group.value(
      "--num-draft-tokens,--spec-draft-n-max,--draft-max,--draft,--draft-n",
      "N",
      "Tokens to guess ahead and judge in one step, where that is quicker; answers stay the same. "
      "0: none (default: 7)",
      [&flags](const std::string& flag, const std::string& value) {
        flags.tokens = static_cast<int>(parse_integer(flag, value, 0, 64));
      });
  group.text(
      "--draft-model,--spec-draft-model,--model-draft,--spec-draft-hf,--hf-repo-draft",
      "MODEL",
      flags.model,
      "A small model of the same vocabulary that guesses (default: repeated texts are looked up)");
}

void set_drafting(const DraftFlags& flags, const Compute& compute, EngineOptions& options) {
  if (flags.model && flags.tokens == 0) {
    throw UserError("--draft-model {}: --num-draft-tokens 0 leaves it nothing to do", *flags.model);
  }
  options.draft_tokens = flags.tokens.value_or(kDraftTokens);
  if (flags.model) {
    // Found, and known to be runnable, before anything large is read.
    auto files = std::make_shared<ModelFiles>(open_model(*flags.model));
    check_model(*files);
    if (compute.read_files) {
      read_tensors(*files);
    }
    options.draft_model = [files, load = compute.load]() mutable {
      load.progress = nullptr;
      return load_model(std::move(*files), load);
    };
  }
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

DiskOptions disk_options(const ComputeFlags& flags) {
  DiskOptions disk;
  if (!flags.cache_dir) {
    if (flags.cache_disk_gb) {
      throw UserError(
          "--cache-disk-gb {}: says how large --cache-dir may be; give that too",
          *flags.cache_disk_gb);
    }
    return disk;
  }
  if (flags.cache_dir->empty()) {
    throw UserError("--cache-dir '': the name is empty");
  }
  disk.folder = *flags.cache_dir;
  if (flags.cache_disk_gb) {
    disk.bytes = static_cast<uint64_t>(*flags.cache_disk_gb * 1e9);
  }
  return disk;
}

void print_note(const std::string& line) {
  say("note: {}\n", printable(line));
}

CacheOptions cache_formats(const ComputeFlags& flags) {
  CacheOptions cache;
  const auto format = [&](const std::optional<std::string>& name, const char* flag) {
    if (!name) {
      return std::optional<KvFormat>();
    }
    if (flags.kv_bits) {
      throw UserError("--kv-bits {}: goes against {} {}; use one", *flags.kv_bits, flag, *name);
    }
    return parse_kv_format(*name);
  };
  cache.keys = format(flags.cache_type_k, "--cache-type-k");
  cache.values = format(flags.cache_type_v, "--cache-type-v");
  if (flags.kv_bits) {
    cache.keys = cache.values = *flags.kv_bits == "8" ? KvFormat::q8 : KvFormat::q4;
  }
  return cache;
}

Compute plan_compute(const ComputeFlags& flags) {
  ComputeChoice choice = choose_compute(flags, gpu_available());
  Compute compute;
  compute.device = choice.device;
  compute.load.kernels = choice.kernels;
  compute.cache = cache_formats(flags);
  compute.disk = disk_options(flags);
  compute.load.dequantize = flags.dequantize;
  compute.lock_memory = flags.lock_memory;
  compute.read_files = flags.read_files;
  if (const int group = choice.kernels == KernelSet::native ? 32 : 64;
      flags.kv_group.value_or(group) != group) {
    throw UserError(
        "--kv-group-size {}: keys and values are coded in groups of {} here",
        *flags.kv_group,
        group);
  }
  compute.deterministic = compute.load.batch_invariant = flags.deterministic;
  if (flags.dtype) {
    compute.load.dtype = *flags.dtype == "f32"   ? mlx::core::float32
                         : *flags.dtype == "f16" ? mlx::core::float16
                                                 : mlx::core::bfloat16;
  }
  compute.load.pool =
      std::make_shared<ThreadPool>(flags.threads.value_or(ThreadPool::default_size()));
  const unsigned processors = std::thread::hardware_concurrency();
  if (processors > 0 && flags.threads > static_cast<int>(processors)) {
    compute.notes.push_back(fmt::format(
        "--threads {}: this machine has {} processors; more threads than that only wait for each "
        "other",
        *flags.threads,
        processors));
  }
  if (flags.deterministic && choice.kernels == KernelSet::mlx) {
    compute.notes.emplace_back(
        "--deterministic: the MLX kernels then take one request at a time, and keep nothing of it");
  }
  return compute;
}

void lock_weights(const Compute& compute, std::vector<std::string>& notes) {
  if (!compute.lock_memory) {
    return;
  }
  if (const auto why = lock_memory()) {
    notes.push_back("--mlock: " + *why);
  }
}

void print_lock_notes(const Compute& compute) {
  std::vector<std::string> notes;
  lock_weights(compute, notes);
  for (const std::string& note : notes) {
    print_note(note);
  }
}

void set_engine(const Compute& compute, EngineOptions& options) {
  options.pool = compute.load.pool;
  options.cache.keys = compute.cache.keys;
  options.cache.values = compute.cache.values;
  options.disk = compute.disk;
  options.deterministic = compute.deterministic;
}

}  // namespace quince::cli
