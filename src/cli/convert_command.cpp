// quince convert: any readable model as MLX safetensors.
#include <chrono>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/generate.h"
#include "cli/interrupts.h"
#include "cli/progress.h"
#include "cli/say.h"
#include "cli/terminal.h"
#include "convert/convert.h"
#include "models/architectures.h"
#include "models/model.h"
#include "system/memory.h"

namespace quince::cli {

namespace {

struct ConvertFlags {
  std::optional<std::string> in;
  std::optional<std::string> out;
  std::optional<std::string> in_flag;
  std::optional<std::string> out_flag;
  std::optional<std::string> dtype;
  bool quantize = false;
  bool dequantize = false;
  std::optional<int> bits;
  std::optional<int> group;
  std::optional<uint64_t> shard;
  bool force = false;
  bool quiet = false;
  std::optional<int> threads;
};

std::string required(
    const std::optional<std::string>& positional,
    const std::optional<std::string>& flag,
    const char* what) {
  if (positional && flag) {
    throw UserError("{} is given twice: '{}' and '{}'", what, *positional, *flag);
  }
  const std::optional<std::string>& value = positional ? positional : flag;
  if (!value || value->empty()) {
    throw UserError("no {} given (see: quince convert --help)", what);
  }
  return *value;
}

ConvertOptions make_options(const ConvertFlags& flags) {
  ConvertOptions options;
  bool quantize = flags.quantize || flags.bits || flags.group;
  if (quantize && flags.dequantize) {
    throw UserError(
        "--dequantize: goes against {}; use one of them",
        flags.bits    ? "--q-bits"
        : flags.group ? "--q-group-size"
                      : "--quantize");
  }
  if (quantize) {
    options.policy = uniform_policy({flags.bits.value_or(4), flags.group.value_or(64), "affine"});
  } else if (flags.dequantize) {
    options.policy = dequantize_policy();
  }
  if (flags.dtype) {
    options.dtype = *flags.dtype == "f32"   ? TensorType::f32
                    : *flags.dtype == "f16" ? TensorType::f16
                                            : TensorType::bf16;
  }
  if (flags.shard) {
    options.shard_bytes = *flags.shard;
  }
  options.force = flags.force;
  options.pool = std::make_shared<ThreadPool>(flags.threads.value_or(ThreadPool::default_size()));
  return options;
}

// Of an architecture that Quince runs, only a whole model is worth converting; others are
// converted tensor by tensor, as they are.
void check_source(const ModelFiles& files, bool quiet) {
  const boost::json::value* type = files.config.if_contains("model_type");
  for (const Architecture& architecture : architectures()) {
    if (type != nullptr && type->is_string() && type->get_string() == architecture.model_type) {
      check_model(files);
      return;
    }
  }
  if (!quiet) {
    fmt::print(
        stderr,
        "note: architecture {} is not one that Quince runs: its tensors are converted unchecked\n",
        type != nullptr ? printable(boost::json::serialize(*type)) : "unknown");
  }
}

int convert_model(const ConvertFlags& flags) {
  std::string in = required(flags.in, flags.in_flag, "IN");
  std::string out = required(flags.out, flags.out_flag, "OUT");
  ConvertOptions options = make_options(flags);
  options.out = out;
  auto start = std::chrono::steady_clock::now();
  ModelFiles files = open_model(in);
  if (!flags.quiet) {
    for (const std::string& note : files.notes) {
      say("note: {}\n", printable(note));
    }
  }
  check_source(files, flags.quiet);
  ProgressBar bar("converting", flags.quiet);
  InterruptScope interrupts(nullptr);
  ConvertHooks hooks;
  hooks.check = [&] { interrupts.check(); };
  hooks.progress = [&](double fraction, const std::string&) { bar.update(fraction); };
  ConvertResult result = convert(files, options, hooks);
  bar.clear();
  if (flags.quiet) {
    return 0;
  }
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::string text;
  for (const std::string& line : result.lines) {
    text += line + "\n";
  }
  for (const std::string& line : result.exceptions) {
    text += "exception: " + line + "\n";
  }
  text += fmt::format(
      "{}: {}, {:.2f} bits a parameter, {} {}, {:.1f} s, peak memory {}\n",
      out,
      human_bytes(result.bytes),
      result.parameters > 0
          ? 8.0 * static_cast<double>(result.bytes) / static_cast<double>(result.parameters)
          : 0.0,
      result.shards,
      result.shards == 1 ? "file" : "files",
      seconds,
      human_bytes(peak_rss()));
  write_stdout(stdout_is_terminal() ? printable(text) : text);
  return 0;
}

}  // namespace

Action add_convert(CLI::App& app) {
  auto flags = std::make_shared<ConvertFlags>();
  FlagGroup arguments(app, "Arguments");
  arguments.positional(
      "IN", flags->in, "A GGUF file, a folder, a Hugging Face repo id, or an alias");
  arguments.positional("OUT", flags->out, "The folder to make; it appears complete or not at all");

  FlagGroup form(app, "Form of the weights");
  form.on(
      "-q,--quantize",
      flags->quantize,
      "Quantize every matrix; one that already has exactly these bits and groups keeps its codes");
  form.value(
      "--q-bits,--bits",
      "N",
      "2, 3, 4, 5, 6 or 8 bits (default: 4); implies -q",
      [flags](const std::string& flag, const std::string& value) {
        int64_t bits = parse_integer(flag, value, 0, 64);
        if (bits != 2 && bits != 3 && bits != 4 && bits != 5 && bits != 6 && bits != 8) {
          throw UserError("{} {}: want 2, 3, 4, 5, 6 or 8", flag, value);
        }
        flags->bits = static_cast<int>(bits);
      });
  form.value(
      "--q-group-size,--group-size",
      "N",
      "32, 64 or 128 columns that share a scale (default: 64); implies -q",
      [flags](const std::string& flag, const std::string& value) {
        int64_t group = parse_integer(flag, value, 0, 1024);
        if (group != 32 && group != 64 && group != 128) {
          throw UserError("{} {}: want 32, 64 or 128", flag, value);
        }
        flags->group = static_cast<int>(group);
      });
  form.on("-d,--dequantize", flags->dequantize, "Make every matrix plain");
  form.choice(
      "--dtype",
      {"f32", "f16", "bf16"},
      flags->dtype,
      "Type of plain weights and of scales (default: the checkpoint's own, bf16 for quantized "
      "GGUF)");

  FlagGroup other(app, "Writing");
  other.on("--force", flags->force, "Replace OUT when it is a model folder already");
  other.value(
      "--shard-size",
      "SIZE",
      "Largest weight file (default: 5 GB)",
      [flags](const std::string& flag, const std::string& value) {
        flags->shard = parse_bytes(flag, value);
      });
  other.value(
      "-t,--threads",
      "N",
      "Threads to work with (default: performance cores)",
      [flags](const std::string& flag, const std::string& value) {
        flags->threads = static_cast<int>(parse_integer(flag, value, 1, 1024));
      });
  other.on("--quiet", flags->quiet, "Say nothing unless something is wrong");
  other.text("--hf-path,-m,--model", "IN", flags->in_flag, "IN, as a flag");
  other.text("--mlx-path,-o,--output", "OUT", flags->out_flag, "OUT, as a flag");
  refuse_flag(
      app, "--upload-repo", true, "uploading is not offered; use the hub's own tools on OUT");
  refuse_flag(
      app,
      "--quant-predicate,--q-mode",
      true,
      "mixed precision and other modes are not offered yet");
  accept_flag(app, "--trust-remote-code", false, "nothing from a model's repository is ever run");
  app.footer(
      "Without -q and -d a quantized model stays quantized: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, "
      "Q5_K "
      "and MLX's own matrices keep their codes (exactly so with --dtype f32, the first five with "
      "f16 "
      "too); the other block types get 8 bits in groups of 32. Plain weights stay plain.\n"
      "A matrix whose width is no multiple of the group gets a smaller group or stays plain; each "
      "one "
      "is printed, and written into config.json.\n\nExamples:\n"
      "  quince convert SmolLM2-135M-Instruct.Q4_1.gguf smollm2-mlx\n"
      "  quince convert Qwen/Qwen3-0.6B qwen3-4bit --q-bits 4 --q-group-size 64");
  return [flags] { return convert_model(*flags); };
}

}  // namespace quince::cli
