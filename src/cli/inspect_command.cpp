// quince inspect: what is in a model.
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/generate.h"
#include "cli/model_report.h"
#include "cli/terminal.h"

namespace quince::cli {

namespace {

struct InspectOptions {
  std::optional<std::string> model;
  std::optional<std::string> model_flag;
  ReportOptions report;
  bool kv_given = false;
  std::optional<uint64_t> memory;
  bool json = false;
  bool tensors = false;
  bool metadata = false;
  bool templates = false;
};

int inspect(const InspectOptions& options) {
  std::optional<std::string> model = options.model ? options.model : options.model_flag;
  if (!model || model->empty()) {
    throw UserError("no MODEL given (see: quince inspect --help)");
  }
  uint64_t memory = options.memory.value_or(memory_status().total);
  ModelReport report = make_report(glance(*model), *model, options.report);
  if (options.json) {
    write_stdout(compact_json(to_json(report, memory)) + "\n");
    return 0;
  }
  TextView view{options.tensors, options.metadata, options.templates, memory, ""};
  view.memory_name = (options.memory ? "" : "this machine's ") + human_bytes(memory);
  std::string text = to_text(report, view);
  write_stdout(stdout_is_terminal() ? printable(text) : text);
  return 0;
}

}  // namespace

Action add_inspect(CLI::App& app) {
  auto options = std::make_shared<InspectOptions>();
  FlagGroup arguments(app, "Arguments");
  arguments.positional(
      "MODEL", options->model, "A GGUF file, a folder, a Hugging Face repo id, or an alias");
  FlagGroup show(app, "What to show");
  show.on("--tensors", options->tensors, "Every tensor with its shape, type and bits");
  show.on("--metadata", options->metadata, "Every key that the file carries");
  show.on("--templates", options->templates, "The whole text of the chat templates");
  show.on("--json", options->json, "Everything, as one JSON object");
  show.text("-m,--model", "MODEL", options->model_flag, "The model, as a flag");
  FlagGroup memory(app, "Memory");
  memory.value(
      "-c,--ctx,--ctx-size",
      "LIST",
      "Contexts to compute the memory for: 4096,32k,128k",
      [options](const std::string& flag, const std::string& value) {
        options->report.contexts = parse_counts(flag, value, 1, int64_t{1} << 30);
      });
  memory.value(
      "--kv",
      "LIST",
      "Types of the cache: f32, f16, bf16, q8, q4 (default: f16)",
      [options](const std::string& flag, const std::string& value) {
        if (!options->kv_given) {
          options->report.kv.clear();
          options->kv_given = true;
        }
        for (size_t begin = 0; begin <= value.size();) {
          size_t end = std::min(value.find(',', begin), value.size());
          std::string item = value.substr(begin, end - begin);
          auto type = parse_kv_format(item);
          if (!type) {
            throw UserError("{} '{}': want f32, f16, bf16, q8 or q4", flag, item);
          }
          options->report.kv.push_back(*type);
          begin = end + 1;
        }
      });
  memory.value(
      "--memory",
      "SIZE",
      "The memory it is to fit in, such as 24GB (default: this machine's)",
      [options](const std::string& flag, const std::string& value) {
        options->memory = parse_bytes(flag, value);
      });
  app.footer("Example:\n  quince inspect model.gguf -c 8k,32k --kv f16,q8 --memory 16GB");
  return [options] { return inspect(*options); };
}

}  // namespace quince::cli
