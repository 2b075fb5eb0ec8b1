// quince pull: a model from the hub into the local cache.
#include <chrono>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <boost/json.hpp>

#include "base/error.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/generate.h"
#include "cli/interrupts.h"
#include "cli/progress.h"
#include "cli/say.h"
#include "cli/terminal.h"
#include "weights/download.h"

namespace quince::cli {

namespace {

struct PullFlags {
  std::optional<std::string> model;
  std::optional<std::string> revision;
  std::optional<std::string> cache;
  int connections = 8;
  bool quiet = false;
  bool json = false;
};

// "1.2 GB of 4.1 GB, 35 MB/s, model-00001-of-00002.safetensors"
std::string progress_detail(const PullProgress& progress, uint64_t first, double seconds) {
  std::string text =
      fmt::format("{} of {}", human_bytes(progress.done), human_bytes(progress.total));
  if (seconds > 0.5 && progress.done > first) {
    const double rate = static_cast<double>(progress.done - first) / seconds;
    text += fmt::format(", {}/s", human_bytes(static_cast<uint64_t>(rate)));
  }
  return progress.file.empty() ? text : text + ", " + progress.file;
}

int pull(const PullFlags& flags) {
  if (!flags.model || flags.model->empty()) {
    throw UserError("no REPO given (see: quince pull --help)");
  }
  PullOptions options;
  options.model = *flags.model;
  options.revision = flags.revision.value_or("main");
  options.cache = flags.cache.value_or("");
  options.hub = HubAccess::from_environment();
  options.connections = flags.connections;

  InterruptScope interrupts([] {});
  ProgressBar bar("Pulling " + options.model, flags.quiet);
  const auto start = std::chrono::steady_clock::now();
  std::optional<uint64_t> first;
  options.progress = [&](const PullProgress& progress) {
    interrupts.check();
    if (progress.total == 0) {  // not known yet
      return;
    }
    first = first.value_or(progress.done);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    const double fraction = progress.total > 0 ? static_cast<double>(progress.done) /
                                                     static_cast<double>(progress.total)
                                               : 0.0;
    bar.update(fraction, progress_detail(progress, *first, elapsed.count()));
  };
  const PullResult result = [&] {
    try {
      return pull_model(options);
    } catch (const Interrupted&) {
      bar.clear();
      if (!flags.quiet) {
        say("stopped; the same command goes on from what is there\n");
      }
      throw;
    }
  }();
  bar.clear();

  if (flags.json) {
    boost::json::array files(result.files.begin(), result.files.end());
    const boost::json::object object{
        {"path", result.path.string()},
        {"commit", result.commit},
        {"bytes", result.bytes},
        {"downloaded", result.downloaded},
        {"files", std::move(files)}};
    write_stdout(boost::json::serialize(object) + "\n");
    return 0;
  }
  if (!flags.quiet) {
    fmt::print(
        stderr,
        "{}: {} in {} {}{}\n",
        options.model,
        human_bytes(result.bytes),
        result.files.size(),
        result.files.size() == 1 ? "file" : "files",
        result.downloaded == 0 ? ", all there already" : "");
  }
  write_stdout(result.path.string() + "\n");
  return 0;
}

}  // namespace

Action add_pull(CLI::App& app) {
  auto flags = std::make_shared<PullFlags>();
  FlagGroup arguments(app, "Arguments");
  arguments.positional(
      "REPO",
      flags->model,
      "A repository as org/name, with :QUANT for one GGUF file of it (org/name:Q8_0; without: "
      "safetensors if there are any, else the only GGUF file or Q4_K_M), or an alias");
  FlagGroup group(app, "Flags");
  group.text("--revision", "NAME", flags->revision, "Branch, tag or commit (default: main)");
  group.text(
      "--cache-dir",
      "DIR",
      flags->cache,
      "Where models are kept (default: HF_HUB_CACHE, HF_HOME/hub, ~/.cache/huggingface/hub)");
  group.value(
      "--connections",
      "N",
      "Range requests at once (default: 8)",
      [flags](const std::string& flag, const std::string& value) {
        flags->connections = static_cast<int>(parse_integer(flag, value, 1, 64));
      });
  group.on("--json", flags->json, "The result as one JSON object");
  group.on("-q,--quiet", flags->quiet, "Print nothing but the path");
  app.footer(
      "HF_ENDPOINT names another hub, HF_TOKEN is sent to it. An interrupted pull goes on where it "
      "stopped. quince list shows what was pulled.\n\nExample:\n  quince pull "
      "HuggingFaceTB/SmolLM2-1.7B-Instruct-GGUF");
  return [flags] { return pull(*flags); };
}

}  // namespace quince::cli
