#include "cli/run_options.h"

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cli/answer_form.h"
#include "cli/args.h"
#include "cli/prompt.h"

namespace quince::cli {

namespace {

constexpr int64_t kMostContext = int64_t{1} << 30;

void refuse_foreign_flags(CLI::App& app) {
  refuse_flag(
      app,
      "--sampler-seq,--sampling-seq",
      true,
      "letters are not understood; --samplers takes the steps' names");
  refuse_flag(
      app, "--adaptive-target,--adaptive-decay", true, "adaptive-p sampling is not offered yet");
  refuse_flag(app, "--parallel", true, "run answers one prompt at a time");
  refuse_flag(app, "--mmproj,--image", true, "images are not offered yet");
  accept_flag(app, "--jinja", false, "chat templates are always rendered in full");
  accept_flag(app, "--conversation,--interactive", false, "without a prompt, run is always a chat");
  accept_flag(app, "--no-display-prompt", false, "the prompt is never shown again");
  accept_flag(app, "--color,--simple-io", false, "answers are always plain text");
  accept_flag(app, "--single-turn", false, "with a prompt, run always ends after the answer");
  accept_flag(
      app, "--multiline-input", false, "several lines can always be pasted or put between \"\"\"");
}

}  // namespace

RunFlags::RunFlags(CLI::App& app) {
  FlagGroup model(app, "Arguments");
  model.positional(
      "MODEL",
      first_,
      "A GGUF file (any part of a split one), a folder, a Hugging Face repo id that was pulled, or "
      "an alias");
  model.positional(
      "PROMPT",
      second_,
      "The question. Without it: standard input when piped, else a chat",
      FlagGroup::Presence::optional);

  FlagGroup input(app, "Prompt");
  input.text("-m,--model", "MODEL", model_flag_, "The model, as a flag");
  input.text("-p,--prompt", "TEXT", prompt_flag_, "The question, as a flag");
  input.text(
      "-f,--file",
      "FILE",
      options_.file,
      "Take the question from a file (- is standard input); behind PROMPT when both are given");
  input.text("--system,--system-prompt", "TEXT", options_.system, "System prompt");
  input.text(
      "--system-file,--system-prompt-file", "FILE", system_file_, "System prompt from a file");
  input.on(
      "--raw,--no-conversation,--ignore-chat-template",
      options_.raw,
      "Use the prompt as it is, without the chat template");
  input.text(
      "--chat-template-file",
      "FILE",
      options_.template_file,
      "Use this Jinja template, not the model's own");
  input.text(
      "--chat-template-kwargs,--chat-template-config",
      "JSON",
      options_.template_values,
      "Values for the template, such as '{\"enable_thinking\": false}'");

  FlagGroup answer(app, "Answer");
  FlagGroup sampling(app, "More about sampling");
  for (const Setting& setting : generation_settings()) {
    const Setting* row = &setting;
    (row->everyday ? answer : sampling)
        .value(
            std::string(row->flags),
            std::string(row->label),
            std::string(row->help),
            [this, row](const std::string& flag, const std::string& value) {
              GenerationSettings scratch;
              row->set(scratch, flag, value);  // complains now, before a model is loaded
              options_.settings.emplace_back(row, value);
            });
  }
  answer.value(
      "--eos-token,--extra-eos-token",
      "TOKEN",
      "A token (text or id) that ends the answer, besides the model's own; may be given several "
      "times",
      [this](const std::string&, const std::string& value) {
        options_.end_tokens.push_back(value);
      });
  answer.on(
      "--ignore-eos",
      options_.ignore_end,
      "The end tokens never come: the answer ends at a limit or a --stop");

  answer.value(
      "--logprobs",
      "N",
      "With --json: each token's log probability, and the N likeliest tokens in its place",
      [this](const std::string& flag, const std::string& value) {
        const NumberParam& row = *find_number_param("top_logprobs");
        options_.logprobs = static_cast<int>(parse_integer(
            flag, value, static_cast<int64_t>(row.low), static_cast<int64_t>(row.high)));
      });

  add_form_flags(app, options_.form);

  FlagGroup context(app, "Context");
  context.file(
      "--prompt-cache-file,--prompt-cache",
      "FILE",
      options_.prompt_cache,
      "Go on from a prompt that quince cache build, or mlx-lm, computed");
  context.value(
      "-c,--ctx-size",
      "N",
      "Most tokens of prompt and answer together (default: what the model was made for)",
      [this](const std::string& flag, const std::string& value) {
        options_.engine.context_length =
            static_cast<int>(parse_count(flag, value, 0, kMostContext));
      });
  context.value(
      "--max-kv-size",
      "N",
      "Keep at most N tokens in the cache: the oldest ones but for the first --keep are forgotten",
      [this](const std::string& flag, const std::string& value) {
        options_.engine.cache.max_size =
            static_cast<int>(parse_count(flag, value, 16, kMostContext));
      });
  context.value(
      "--keep",
      "N",
      "With --max-kv-size: first tokens that are never forgotten (default: 4)",
      [this](const std::string& flag, const std::string& value) {
        options_.engine.cache.keep = static_cast<int>(parse_integer(flag, value, 0, kMostContext));
      });
  context.value(
      "--prefill-chunk,--prefill-step-size,--batch-size,--ubatch-size",
      "N",
      "Prompt tokens computed at once (default: 512)",
      [this](const std::string& flag, const std::string& value) {
        options_.engine.prefill_chunk = static_cast<int>(parse_count(flag, value, 1, 1 << 20));
      });

  add_compute_flags(app, options_.compute);
  add_draft_flags(app, options_.draft);

  FlagGroup output(app, "Output");
  output.on(
      "--json", options_.json, "One JSON object with text, token ids, finish reason and timings");
  output.on(
      "-v,--verbose",
      options_.verbose,
      "Speed, time to the first token and peak memory, on standard error");
  output.on("-q,--quiet", options_.quiet, "No notes, no progress bar, no speed line");
  refuse_foreign_flags(app);
  app.footer(
      "Sampling: what the model's generation_config.json (or its GGUF file) recommends goes before "
      "the defaults named here. /set in a chat shows what is in use.\n\n"
      "Examples:\n"
      "  quince run SmolLM2-135M-Instruct.Q4_1.gguf \"What is a quince?\"\n"
      "  quince run mlx-community/Qwen3-0.6B-4bit --temp 0 -f question.txt\n"
      "  git diff | quince run MODEL --system \"Write a commit message for this diff.\"\n"
      "  git diff | quince run MODEL \"Write a commit message for this diff:\" -f -\n"
      "  quince run MODEL \"Paris or Rome?\" --choice Paris,Rome\n"
      "  quince run MODEL              (a chat; /help lists its commands)");
}

RunOptions RunFlags::finish() const {
  RunOptions options = options_;
  std::optional<std::string> prompt = second_;
  if (model_flag_) {
    if (first_ && second_) {
      throw UserError("'{}': one argument too many; the model is given by --model", *second_);
    }
    options.model = *model_flag_;
    prompt = first_;
  } else if (first_) {
    options.model = *first_;
  } else {
    throw UserError("no MODEL given (see: quince run --help)");
  }
  if (options.model.empty()) {
    throw UserError("MODEL '': the name is empty");
  }
  if (prompt && prompt_flag_) {
    throw UserError(
        "--prompt '{}': a prompt is already given as an argument: '{}'", *prompt_flag_, *prompt);
  }
  options.prompt = prompt_flag_ ? prompt_flag_ : prompt;
  check_utf8(options.prompt.value_or(""), "the prompt");
  check_utf8(options.system.value_or(""), "--system");
  if (system_file_) {
    if (options.system) {
      throw UserError(
          "--system-file {}: --system is already given; use one of them", *system_file_);
    }
    options.system = read_prompt_file(*system_file_);
  }
  if (options.prompt_cache && options.system) {
    throw UserError(
        "--prompt-cache-file {}: a system prompt comes before it: give --system to quince cache "
        "build",
        *options.prompt_cache);
  }
  if (options.logprobs && !options.json) {
    throw UserError("--logprobs {}: only --json shows them; add it", *options.logprobs);
  }
  if (options.raw) {
    if (options.system) {
      throw UserError(
          "--system: has no place in a raw prompt; write it into the prompt or drop --raw");
    }
    if (options.template_file || options.template_values) {
      throw UserError(
          "--raw: goes against {}; use one of them",
          options.template_file ? "--chat-template-file" : "--chat-template-kwargs");
    }
  }
  if (options.engine.cache.max_size &&
      options.engine.cache.keep >= *options.engine.cache.max_size) {
    throw UserError(
        "--keep {}: want less than --max-kv-size {}",
        options.engine.cache.keep,
        *options.engine.cache.max_size);
  }
  return options;
}

}  // namespace quince::cli
