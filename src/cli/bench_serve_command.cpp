// quince bench serve: what many clients at once see of the engine.
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
#include "cli/terminal.h"
#include "measure/serve_bench.h"
#include "weights/model_files.h"

namespace quince::cli {

namespace {

namespace json = boost::json;

struct ServeBenchFlags {
  std::optional<std::string> model;
  ServeLoad load;
  int parallel = 32;
  int chunk = 512;
  int64_t kv_tokens = 0;
  size_t kv_bytes = 0;
  bool json = false;
  ComputeFlags compute;
  DraftFlags draft;
};

// "64" or "32-128".
LengthRange length_range(const std::string& flag, const std::string& value) {
  constexpr int kMost = 1 << 20;
  const size_t dash = value.find('-', 1);
  const auto number = [&](const std::string& text) {
    return static_cast<int>(parse_count(flag, text, 1, kMost));
  };
  if (dash == std::string::npos) {
    return {number(value), number(value)};
  }
  const LengthRange range{number(value.substr(0, dash)), number(value.substr(dash + 1))};
  if (range.low > range.high) {
    throw UserError("{} {}: the first number is larger than the second", flag, value);
  }
  return range;
}

json::object object(const Percentiles& p) {
  return {{"p50", p.p50}, {"p90", p.p90}, {"p99", p.p99}, {"max", p.max}};
}

void print_json(const ServeBenchFlags& flags, const ServeResult& result) {
  json::object out{
      {"test", "serve"},
      {"model", *flags.model},
      {"requests", flags.load.requests},
      {"clients", flags.load.clients},
      {"rate", flags.load.rate},
      {"completed", result.completed},
      {"failed", result.failed},
      {"seconds", result.seconds},
      {"prompt_tokens", result.prompt_tokens},
      {"cached_tokens", result.cached_tokens},
      {"output_tokens", result.output_tokens},
      {"output_tok_s", result.output_per_second()},
      {"time_to_first_token", object(result.first_token)},
      {"inter_token", object(result.gap)},
      {"request", object(result.request)},
      {"steps", result.engine.steps},
      {"drafted_tokens", result.engine.drafted_tokens},
      {"accepted_tokens", result.engine.accepted_tokens},
      {"preemptions", result.engine.preemptions},
      {"memory_rung", name(result.engine.memory)},
      {"disk_pages_read", result.engine.disk_read},
      {"disk_pages_written", result.engine.disk_written}};
  write_stdout(compact_json(out) + "\n");
}

void print_table(const ServeBenchFlags& flags, const ServeResult& result) {
  std::string text = fmt::format(
      "{} requests of {} clients in {:.2f} s: {:.1f} tok/s generated, {:.1f} tok/s of prompts\n\n"
      "| milliseconds        |      p50 |      p90 |      p99 |      max |\n"
      "|---------------------|---------:|---------:|---------:|---------:|\n",
      result.completed,
      flags.load.clients,
      result.seconds,
      result.output_per_second(),
      result.seconds > 0 ? static_cast<double>(result.prompt_tokens) / result.seconds : 0);
  const auto row = [&](std::string_view name, const Percentiles& p) {
    text += fmt::format(
        "| {:<19} | {:8.2f} | {:8.2f} | {:8.2f} | {:8.2f} |\n",
        name,
        p.p50 * 1e3,
        p.p90 * 1e3,
        p.p99 * 1e3,
        p.max * 1e3);
  };
  row("time to first token", result.first_token);
  row("between tokens", result.gap);
  row("whole request", result.request);
  if (result.failed > 0) {
    text += fmt::format("\n{} failed; the first: {}\n", result.failed, result.first_error);
  }
  write_stdout(text);
}

int bench_serve(ServeBenchFlags& flags) {
  if (!flags.model) {
    throw UserError("no MODEL given (see: quince bench serve --help)");
  }
  const int longest = flags.load.prompt.high + flags.load.output.high;
  if (flags.kv_tokens > 0 && flags.kv_tokens < longest) {
    throw UserError(
        "--kv-tokens {}: a prompt and an answer of {} tokens must fit", flags.kv_tokens, longest);
  }
  const Compute compute = plan_compute(flags.compute);
  ModelFiles files = open_model(*flags.model);
  if (compute.read_files) {
    read_tensors(files);
  }
  EngineOptions options;
  set_engine(compute, options);
  options.log = print_note;
  options.prefill_chunk = flags.chunk;
  options.max_running = flags.parallel;
  options.kv_tokens = flags.kv_tokens;
  set_drafting(flags.draft, compute, options);
  options.kv_bytes = flags.kv_bytes;
  ProgressBar bar("loading");
  LoadOptions load = compute.load;
  load.progress = [&bar](double fraction) { bar.update(fraction); };
  Engine engine(
      [&] {
        use_device(compute.device);
        return load_model(std::move(files), load);
      },
      options);
  bar.clear();
  print_lock_notes(compute);
  InterruptScope interrupts(nullptr);
  flags.load.check = [&] { interrupts.check(); };
  ServeLoad warm_up = flags.load;
  warm_up.requests = warm_up.clients = 2;
  warm_up.rate = 0;
  warm_up.seed = ~flags.load.seed;  // none of its prompts may be found computed later
  run_load(engine, warm_up);
  const ServeResult result = run_load(engine, flags.load);
  if (flags.json) {
    print_json(flags, result);
  } else {
    print_table(flags, result);
  }
  return result.failed > 0 ? 1 : 0;
}

}  // namespace

Action add_bench_serve(CLI::App& app) {
  auto flags = std::make_shared<ServeBenchFlags>();
  FlagGroup arguments(app, "Arguments");
  arguments.positional(
      "MODEL", flags->model, "A GGUF file, a folder, a Hugging Face repo id, or an alias");
  FlagGroup group(app, "Load");
  const auto integer =
      [&](const std::string& names, int& target, int min, int max, const std::string& help) {
        group.value(
            names, "N", help, [&target, min, max](const std::string& flag, const std::string& v) {
              target = static_cast<int>(parse_count(flag, v, min, max));
            });
      };
  const auto lengths = [&](const std::string& names, LengthRange& target, const std::string& help) {
    group.value(names, "N|LOW-HIGH", help, [&target](const std::string& f, const std::string& v) {
      target = length_range(f, v);
    });
  };
  integer("--requests", flags->load.requests, 1, 1000000, "Requests in all (default: 64)");
  integer("--clients", flags->load.clients, 1, 4096, "Requests at once (default: 16)");
  group.value(
      "--rate",
      "R",
      "Arrivals a second; 0: as soon as a client is free (default: 0)",
      [flags](const std::string& flag, const std::string& value) {
        flags->load.rate = parse_real(flag, value, 0, 1e6);
      });
  lengths("--prompt-tokens", flags->load.prompt, "Tokens of a prompt (default: 128)");
  lengths("--output-tokens", flags->load.output, "Tokens of an answer (default: 64)");
  integer(
      "--shared-prefix",
      flags->load.shared_prefix,
      0,
      1 << 20,
      "First tokens that all prompts share (default: 0)");
  group.value(
      "--seed",
      "N",
      "Of lengths, tokens and arrivals (default: 1)",
      [flags](const std::string& flag, const std::string& value) {
        flags->load.seed = static_cast<uint64_t>(
            parse_integer(flag, value, 0, std::numeric_limits<int64_t>::max()));
      });
  FlagGroup engine(app, "Engine");
  engine.value(
      "--parallel",
      "N",
      "Sequences that advance together (default: 32)",
      [flags](const std::string& flag, const std::string& value) {
        flags->parallel = static_cast<int>(parse_integer(flag, value, 1, 4096));
      });
  engine.value(
      "--prefill-chunk,--ubatch-size",
      "N",
      "Prompt tokens of a step (default: 512)",
      [flags](const std::string& flag, const std::string& value) {
        flags->chunk = static_cast<int>(parse_count(flag, value, 1, 1 << 20));
      });
  engine.value(
      "--kv-tokens",
      "N",
      "Tokens that all sequences may hold together (default: no limit)",
      [flags](const std::string& flag, const std::string& value) {
        flags->kv_tokens = parse_count(flag, value, 32, int64_t{1} << 40);
      });
  engine.value(
      "--kv-memory",
      "SIZE",
      "Memory for keys and values of all, such as 2GB (default: no limit)",
      [flags](const std::string& flag, const std::string& value) {
        flags->kv_bytes = parse_bytes(flag, value);
      });
  add_compute_flags(app, flags->compute);
  add_draft_flags(app, flags->draft);
  FlagGroup output(app, "Output");
  output.on("--json", flags->json, "One JSON object");
  app.footer(
      "Times are what a client sees, from the moment its request was due. Tokens are random and "
      "end tokens are ignored.\n\nExample:\n"
      "  quince bench serve model.gguf --clients 16 --prompt-tokens 60-200 --output-tokens 64");
  return [flags] { return bench_serve(*flags); };
}

}  // namespace quince::cli
