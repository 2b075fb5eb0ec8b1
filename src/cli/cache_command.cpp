// quince cache build, quince cache inspect: prompts that are computed once and kept in a file.
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "cache/prompt_cache_file.h"
#include "cli/args.h"
#include "cli/cached_prompt.h"
#include "cli/commands.h"
#include "cli/generate.h"
#include "cli/loaded_model.h"
#include "cli/terminal.h"
#include "weights/json_file.h"

namespace quince::cli {

namespace {

namespace json = boost::json;

struct BuildFlags {
  std::optional<std::string> model;
  std::optional<std::string> model_flag;
  std::optional<std::string> file;
  std::optional<std::string> prompt;
  std::optional<std::string> system;
  std::optional<std::string> out;
  std::optional<std::string> template_values;
  bool raw = false;
  bool quiet = false;
  EngineOptions engine;
  ComputeFlags compute;
};

int build(const BuildFlags& flags) {
  const std::optional<std::string> model = flags.model ? flags.model : flags.model_flag;
  if (!model || model->empty()) {
    throw UserError("no MODEL given (see: quince cache build --help)");
  }
  if (!flags.out || flags.out->empty()) {
    throw UserError("no file given for the cache: -o FILE.safetensors");
  }
  if (flags.file.has_value() == flags.prompt.has_value()) {
    throw UserError("the prompt comes from --prompt-file or from --prompt: give one of them");
  }
  const std::string text = flags.file ? read_prompt_file(*flags.file) : *flags.prompt;
  check_utf8(text, "the prompt");
  LoadRequest request;
  request.model = *model;
  request.compute = flags.compute;
  request.engine = flags.engine;
  request.text.needs_template = !flags.raw;
  request.quiet = flags.quiet;
  LoadedModel loaded = load(request);
  const json::object values =
      flags.template_values ? parse_json_object(*flags.template_values, "--chat-template-kwargs")
                            : json::object();
  if (flags.system && (flags.raw || !loaded.text.chat_template)) {
    throw UserError("--system: there is no chat template that could take it");
  }
  const std::vector<Token> tokens =
      prompt_to_cache(loaded.text, flags.system, text, flags.raw, values);
  loaded.engine->save_prompt(tokens, *flags.out, *model);
  if (!flags.quiet) {
    fmt::print(
        stderr,
        "{}: {} tokens of {}; go on from it with: quince run {} \"...\" --prompt-cache-file {}\n",
        printable(*flags.out),
        tokens.size(),
        printable(*model),
        printable(*model),
        printable(*flags.out));
  }
  return 0;
}

json::object to_json(const PromptCacheFile& file) {
  json::object out{
      {"tokens", file.length},
      {"layers", file.layers.size()},
      {"kv_heads", file.kv_heads},
      {"head_dim", file.head_dim}};
  json::array layers;
  for (const PromptCacheLayer& layer : file.layers) {
    json::object entry{
        {"class", layer.kind}, {"type", info(layer.keys[0].type).name}, {"rows", layer.rows}};
    if (layer.max_size > 0) {
      entry["max_size"] = layer.max_size;
      entry["keep"] = layer.keep;
    }
    if (layer.bits > 0) {
      entry["bits"] = layer.bits;
      entry["group_size"] = layer.group;
    }
    layers.push_back(std::move(entry));
  }
  out["caches"] = std::move(layers);
  if (file.model) {
    out["model_identity"] = *file.model;
    out["token_ids"] = json::array(file.tokens.begin(), file.tokens.end());
  }
  json::object notes;
  for (const auto& [key, value] : file.notes) {
    notes[key] = value;
  }
  out["metadata"] = std::move(notes);
  return out;
}

std::string to_text(const PromptCacheFile& file) {
  std::string text = fmt::format(
      "{}: {} tokens, {} layers of {} key/value heads of {}\n",
      file.source,
      file.length,
      file.layers.size(),
      file.kv_heads,
      file.head_dim);
  // Layers that are alike, once.
  for (size_t i = 0; i < file.layers.size();) {
    const PromptCacheLayer& layer = file.layers[i];
    size_t end = i + 1;
    while (end < file.layers.size() && file.layers[end].kind == layer.kind &&
           file.layers[end].rows == layer.rows && file.layers[end].max_size == layer.max_size) {
      ++end;
    }
    text +=
        end == i + 1 ? fmt::format("layer {}: ", i) : fmt::format("layers {} to {}: ", i, end - 1);
    text += fmt::format("{}, {} rows of {}", layer.kind, layer.rows, info(layer.keys[0].type).name);
    text += layer.max_size > 0 ? fmt::format(", at most {}", layer.max_size) : "";
    text += layer.bits > 0 ? fmt::format(", {} bits in groups of {}", layer.bits, layer.group) : "";
    text += "\n";
    i = end;
  }
  text += file.model ? fmt::format("model: {}\n", *file.model)
                     : std::string("model: not named (made by mlx-lm)\n");
  for (const auto& [key, value] : file.notes) {
    text += fmt::format("{}: {}\n", key, value);
  }
  return text;
}

}  // namespace

Action add_cache_build(CLI::App& app) {
  auto flags = std::make_shared<BuildFlags>();
  FlagGroup arguments(app, "Arguments");
  arguments.positional(
      "MODEL", flags->model, "A GGUF file, a folder, a Hugging Face repo id, or an alias");
  FlagGroup input(app, "Prompt");
  input.text("-m,--model", "MODEL", flags->model_flag, "The model, as a flag");
  input.text(
      "-f,--prompt-file,--file", "FILE", flags->file, "The text to compute (- is standard input)");
  input.text("-p,--prompt", "TEXT", flags->prompt, "The text itself");
  input.text("--system,--system-prompt", "TEXT", flags->system, "System prompt before it");
  input.on(
      "--raw,--ignore-chat-template", flags->raw, "The text as it is, without the chat template");
  input.text(
      "--chat-template-kwargs,--chat-template-config",
      "JSON",
      flags->template_values,
      "Values for the template");
  FlagGroup output(app, "Output");
  output.text(
      "-o,--output,--prompt-cache-file", "FILE", flags->out, "The cache, a safetensors file");
  output.on("-q,--quiet", flags->quiet, "No notes, no progress bar");
  FlagGroup context(app, "Context");
  context.value(
      "-c,--ctx-size",
      "N",
      "Most tokens (default: what the model was made for)",
      [flags](const std::string& flag, const std::string& value) {
        flags->engine.context_length =
            static_cast<int>(parse_count(flag, value, 0, int64_t{1} << 30));
      });
  context.value(
      "--max-kv-size",
      "N",
      "Keep at most N tokens: the oldest ones but for the first --keep are forgotten",
      [flags](const std::string& flag, const std::string& value) {
        flags->engine.cache.max_size =
            static_cast<int>(parse_count(flag, value, 16, int64_t{1} << 30));
      });
  context.value(
      "--keep",
      "N",
      "With --max-kv-size: first tokens that are never forgotten (default: 4)",
      [flags](const std::string& flag, const std::string& value) {
        flags->engine.cache.keep =
            static_cast<int>(parse_integer(flag, value, 0, int64_t{1} << 30));
      });
  add_compute_flags(app, flags->compute);
  app.footer(
      "The file is laid out as mlx-lm's prompt caches, which either program reads. With the chat "
      "template the text is the beginning of the user's message; what run is asked follows it.\n\n"
      "Example:\n"
      "  quince cache build model.gguf --prompt-file book.txt -o book.safetensors\n"
      "  quince run model.gguf \"Who is the murderer?\" --prompt-cache-file book.safetensors");
  return [flags] { return build(*flags); };
}

Action add_cache_inspect(CLI::App& app) {
  struct Flags {
    std::optional<std::string> file;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  FlagGroup arguments(app, "Arguments");
  arguments.positional("FILE", flags->file, "A prompt cache of quince or of mlx-lm");
  FlagGroup output(app, "Output");
  output.on("--json", flags->json, "One JSON object");
  return [flags] {
    if (!flags->file) {
      throw UserError("no FILE given (see: quince cache inspect --help)");
    }
    const PromptCacheFile file = open_prompt_cache(*flags->file);
    const std::string text = flags->json ? compact_json(to_json(file)) + "\n" : to_text(file);
    write_stdout(stdout_is_terminal() ? printable(text) : text);
    return 0;
  };
}

}  // namespace quince::cli
