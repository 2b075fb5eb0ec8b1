// quince bench: speed of prompts and of decoding, as a table or as JSON lines.
#include <algorithm>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/compute_flags.h"
#include "cli/generate.h"
#include "cli/interrupts.h"
#include "cli/progress.h"
#include "cli/say.h"
#include "cli/terminal.h"
#include "measure/bench.h"
#include "system/bandwidth.h"
#include "system/machine.h"
#include "system/memory.h"
#include "weights/model_files.h"

namespace quince::cli {

namespace {

namespace json = boost::json;

struct BenchFlags {
  std::optional<std::string> model;
  std::optional<std::string> model_flag;
  std::vector<int> prompts{512};
  std::vector<int> generations{128};
  std::vector<int> batches{1};
  std::vector<int> depths{0};
  int repetitions = 3;
  int chunk = 512;
  bool json = false;
  bool bandwidth = true;
  ComputeFlags compute;
};

std::vector<int> int_list(const std::string& flag, const std::string& value, int min, int max) {
  std::vector<int> list;
  for (int64_t number : parse_counts(flag, value, min, max)) {
    list.push_back(static_cast<int>(number));
  }
  return list;
}

// A step reads every weight but those of the embedding, of which it looks up a row, unless the
// embedding is the output head as well.
uint64_t weights_read(const ModelFiles& files, uint64_t held) {
  bool head = false;
  uint64_t total = 0;
  uint64_t embedding = 0;
  for (const TensorView& tensor : files.tensors) {
    total += tensor.bytes.size();
    if (tensor.name.starts_with("lm_head.")) {
      head = true;
    }
    if (tensor.name.starts_with("model.embed_tokens.")) {
      embedding += tensor.bytes.size();
    }
  }
  const json::value* tied = files.config.if_contains("tie_word_embeddings");
  if (!head || (tied != nullptr && tied->is_bool() && tied->get_bool()) || total == 0) {
    return held;
  }
  return static_cast<uint64_t>(
      static_cast<double>(held) * static_cast<double>(total - embedding) /
      static_cast<double>(total));
}

// Of the model and its tests, without the buffer that bandwidth is measured on.
struct PeakMemory {
  bool known = true;
  uint64_t before = 0;  // measuring bandwidth
};

// Progress notes would spoil a table on the same terminal, so they go away line by line.
class Report {
 public:
  Report(
      const BenchFlags& flags,
      const std::string& model,
      const ModelInfo& info,
      double peak,
      PeakMemory memory)
      : flags_(flags), model_(model), info_(info), peak_(peak), memory_(memory) {}

  void head(const Machine& machine, const Compute& compute) {
    kernels_ = compute.load.kernels == KernelSet::native ? "native" : "mlx";
    device_ = compute.device == DeviceKind::gpu ? "gpu" : "cpu";
    threads_ = compute.load.pool->size();
    cpu_ = machine.cpu;
    if (flags_.json) {
      return;
    }
    std::string out = fmt::format(
        "{}: {}, {} parameters, {} in memory\n{}, {} {}, {} kernels on the {}",
        model_,
        info_.model_type,
        info_.parameters,
        human_bytes(info_.weight_bytes),
        device_ == "gpu" ? gpu_name() : machine.cpu,
        threads_,
        threads_ == 1 ? "thread" : "threads",
        kernels_,
        device_);
    if (peak_ > 0) {
      out += fmt::format(", memory reads at {:.1f} GB/s", peak_);
    }
    out += fmt::format(
        "\n\n| {:<18} | {:>10} | {:>10} | {:>10} | {:>8} | {:>6} |\n"
        "|{:-<20}|{:-<11}:|{:-<11}:|{:-<11}:|{:-<9}:|{:-<7}:|\n",
        "test",
        "tok/s",
        "min",
        "max",
        "GB/s",
        "share",
        "",
        "",
        "",
        "",
        "",
        "");
    write_stdout(out);
  }

  void row(const BenchResult& result) {
    write_stdout(flags_.json ? json_row(result) : table_row(result));
  }

 private:
  double share(const BenchResult& result) const {
    return peak_ > 0 && device_ == "cpu" ? result.gb_per_second / peak_ : 0;
  }

  std::string table_row(const BenchResult& result) const {
    const Spread& speed = result.tokens_per_second;
    std::string bandwidth =
        result.gb_per_second > 0 ? fmt::format("{:.1f}", result.gb_per_second) : "";
    std::string part = share(result) > 0 ? fmt::format("{:.0f}%", share(result) * 100) : "";
    return fmt::format(
        "| {:<18} | {:>10.2f} | {:>10.2f} | {:>10.2f} | {:>8} | {:>6} |\n",
        result.test.name(),
        speed.median,
        speed.min,
        speed.max,
        bandwidth,
        part);
  }

  std::string json_row(const BenchResult& result) const {
    const BenchTest& test = result.test;
    bool prompt = test.kind == BenchTest::Kind::prompt;
    const Spread& speed = result.tokens_per_second;
    json::object object{
        {"test", test.name()},
        {"n_prompt", prompt ? test.tokens : 0},
        {"n_gen", prompt ? 0 : test.tokens},
        {"batch", test.batch},
        {"depth", test.depth},
        {"tok_s", {{"min", speed.min}, {"median", speed.median}, {"max", speed.max}}},
        {"runs", json::value_from(result.runs)},
        {"model", model_},
        {"model_type", info_.model_type},
        {"parameters", info_.parameters},
        {"model_bytes", info_.weight_bytes},
        {"threads", threads_},
        {"device", device_},
        {"kernels", kernels_},
        {"cpu", cpu_}};
    if (memory_.known) {
      object["peak_memory_bytes"] = std::max(memory_.before, peak_rss());
    }
    if (!prompt) {
      object["bytes_per_step"] = result.bytes_per_step;
      object["gb_s"] = result.gb_per_second;
    }
    if (peak_ > 0) {
      object["read_gb_s"] = peak_;
      if (!prompt && share(result) > 0) {
        object["share"] = share(result);
      }
    }
    return compact_json(object) + "\n";
  }

  const BenchFlags& flags_;
  std::string model_;
  const ModelInfo& info_;
  double peak_;
  PeakMemory memory_;
  std::string kernels_;
  std::string device_;
  std::string cpu_;
  int threads_ = 0;
};

int bench(const BenchFlags& flags) {
  std::optional<std::string> model_name = flags.model ? flags.model : flags.model_flag;
  if (!model_name || model_name->empty()) {
    throw UserError("no MODEL given (see: quince bench --help)");
  }
  if (flags.compute.cache_dir) {
    throw UserError(
        "--cache-dir {}: bench computes every prompt; use bench serve", *flags.compute.cache_dir);
  }
  Compute compute = plan_compute(flags.compute);
  for (const std::string& note : compute.notes) {
    say("note: {}\n", note);
  }
  use_device(compute.device);
  ModelFiles files = open_model(*model_name);
  if (compute.read_files) {
    read_tensors(files);
  }
  files.tokenizer = {};
  ModelFiles shapes = files;  // views only
  ProgressBar bar("loading");
  compute.load.progress = [&bar](double fraction) { bar.update(fraction); };
  std::unique_ptr<Model> model = load_model(std::move(files), compute.load);
  bar.clear();
  print_lock_notes(compute);
  const std::vector<BenchTest> tests =
      bench_tests(flags.prompts, flags.generations, flags.batches, flags.depths);
  for (const BenchTest& test : tests) {
    check_fits(test, model->info());  // before the first of them takes its minutes
  }
  double peak = 0;
  PeakMemory memory;
  if (flags.bandwidth) {
    memory.before = peak_rss();
    peak = measure_read_bandwidth(*compute.load.pool).gb_per_second;
    memory.known = reset_peak_rss();  // or its buffer would count
  }
  Report report(flags, *model_name, model->info(), peak, memory);
  report.head(machine(), compute);
  InterruptScope interrupts(nullptr);
  BenchOptions options;
  options.repetitions = flags.repetitions;
  options.prefill_chunk = flags.chunk;
  options.cache = compute.cache;
  options.pool = compute.load.pool;
  options.weight_bytes_read = weights_read(shapes, model->info().weight_bytes);
  options.check = [&] { interrupts.check(); };
  shapes = {};
  Bench bench(*model, options);
  for (const BenchTest& test : tests) {
    report.row(bench.run(test));
  }
  return 0;
}

}  // namespace

Action add_bench(CLI::App& app) {
  auto flags = std::make_shared<BenchFlags>();
  constexpr int kMost = 1 << 24;
  FlagGroup arguments(app, "Arguments");
  arguments.positional(
      "MODEL", flags->model, "A GGUF file, a folder, a Hugging Face repo id, or an alias");
  FlagGroup tests(app, "Tests");
  auto list =
      [&](const std::string& names, std::vector<int>& target, int min, const std::string& help) {
        tests.value(
            names, "LIST", help, [&target, min](const std::string& flag, const std::string& value) {
              target = int_list(flag, value, min, kMost);
            });
      };
  list("-p,--n-prompt", flags->prompts, 0, "Prompt lengths, 0 for none (default: 512)");
  list("-n,--n-gen", flags->generations, 0, "Tokens to generate, 0 for none (default: 128)");
  list("-b,--batch", flags->batches, 1, "Sequences that decode together (default: 1)");
  list("-d,--n-depth,--depth", flags->depths, 0, "Tokens in the cache beforehand (default: 0)");
  tests.value(
      "-r,--repetitions",
      "N",
      "Measurements of each test, after one warm-up (default: 3)",
      [flags](const std::string& flag, const std::string& value) {
        flags->repetitions = static_cast<int>(parse_integer(flag, value, 1, 10000));
      });
  tests.value(
      "--prefill-chunk,--ubatch-size",
      "N",
      "Prompt tokens computed at once (default: 512)",
      [flags](const std::string& flag, const std::string& value) {
        flags->chunk = static_cast<int>(parse_count(flag, value, 1, 1 << 20));
      });
  add_compute_flags(app, flags->compute);
  refuse_flag(
      app,
      "--draft-model,--num-draft-tokens",
      true,
      "this measures the model alone; quince bench serve drafts");
  FlagGroup output(app, "Output");
  output.on("--json", flags->json, "One JSON object a line");
  output.on(
      "!--no-bandwidth",
      flags->bandwidth,
      "Do not measure the machine's read bandwidth (takes about a second)");
  output.text("-m,--model", "MODEL", flags->model_flag, "The model, as a flag");
  app.footer(
      "tok/s is the median; a batch counts the tokens of all its sequences. GB/s: weights, keys "
      "and "
      "values that every step must read; share: of the measured read bandwidth. Prompts are "
      "measured "
      "one at a time.\n\nExample:\n"
      "  quince bench model.gguf -p 128,512 -n 128 -b 1,4,16 -d 0,4096 -r 3");
  return [flags] { return bench(*flags); };
}

}  // namespace quince::cli
