// quince run: one answer, or a chat.
#include <unistd.h>
#include <csignal>

#include <chrono>
#include <csignal>
#include <memory>
#include <random>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json_text.h"
#include "cli/args.h"
#include "cli/cached_prompt.h"
#include "cli/chat.h"
#include "cli/commands.h"
#include "cli/generate.h"
#include "cli/interrupts.h"
#include "cli/line_editor.h"
#include "cli/loaded_model.h"
#include "cli/run_options.h"
#include "cli/say.h"
#include "cli/terminal.h"
#include "system/memory.h"
#include "tokenizer/spellings.h"
#include "weights/json_file.h"

namespace quince::cli {

namespace {

namespace json = boost::json;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A loaded model with what the command line said about answers.
class Runner {
 public:
  Runner(const RunOptions& options, Clock::time_point start)
      : start_(start), model_(load(request(options))) {
    if (!options.quiet) {
      int trained = model_.engine->info().context_length;
      if (trained > 0 && options.engine.context_length > trained) {
        model_.notes.push_back(fmt::format(
            "--ctx-size {}: the model was trained with {} tokens; beyond them its answers get "
            "worse",
            options.engine.context_length,
            trained));
      }
      for (const std::string& note : model_.notes) {
        say("note: {}\n", printable(note));
      }
    }
    for (const std::string& line :
         apply_generation_config(model_.generation_config, settings_.sampling)) {
      say("note: {}\n", printable(line));
    }
    for (const auto& [setting, value] : options.settings) {
      setting->set(settings_, setting->name, value);
    }
    settings_.sampling.end_tokens = model_.text.end_tokens;
    settings_.sampling.ignore_eos = options.ignore_end;
    settings_.sampling.logprobs = options.logprobs.has_value();
    settings_.sampling.top_logprobs = options.logprobs.value_or(0);
    if (options.form) {
      model_.engine->set_tokenizer(model_.text.tokenizer);
      settings_.sampling.constraint = options.form;
    }
    if (options.template_values) {
      values_ = parse_json_object(*options.template_values, "--chat-template-kwargs");
    }
    if (options.prompt_cache) {
      prefix_ = model_.engine->load_prompt(*options.prompt_cache);
      for (const std::string& note : prefix_->notes) {
        if (!options.quiet) {
          print_note(note);
        }
      }
    }
  }

  LoadedModel& model() {
    return model_;
  }
  const GenerationSettings& settings() const {
    return settings_;
  }
  bool has_template() const {
    return model_.text.chat_template.has_value();
  }

  std::vector<Token> chat_prompt(const Conversation& conversation) const {
    RenderOptions render;
    render.extra = values_;
    return model_.text.chat_template->encode(model_.text.tokenizer, conversation.to_json(), render);
  }

  std::vector<Token> prompt_after_prefix(const std::string& prompt, bool raw) const {
    return prompt_after_cache(model_.text, prompt, raw, values_);
  }

  struct Answer {
    GeneratedText text;
    FinishReason reason = FinishReason::none;
    GenerationStats stats;
    int signal = 0;          // that stopped it
    double first_token = 0;  // seconds from the program's start
  };

  // Streams one answer. A signal cancels it.
  Answer answer(
      std::vector<Token> prompt, const GenerationSettings& settings, const ShowText& show) {
    SamplingParams params = settings.sampling;
    params.bad_words = word_sequences(model_.text.tokenizer, settings.bad_words);
    if (params.dry_multiplier > 0) {
      params.dry_sequence_breakers = breakers(settings.dry_breakers);
    }
    if (!params.seed) {
      params.seed = std::random_device{}();  // ours, so that it can be reported
    }
    last_seed_ = *params.seed;
    int prompt_tokens = static_cast<int>(prompt.size() + (prefix_ ? prefix_->tokens.size() : 0));
    RequestOptions request;
    request.prefix = prefix_;
    TokenStream stream = model_.engine->submit(std::move(prompt), params, std::move(request));
    InterruptScope interrupts([&stream] { stream.cancel(); });
    Answer answer;
    bool first = true;
    auto next = [&] {
      auto token = stream.next();
      if (first && token) {
        answer.first_token = seconds_since(start_);
      }
      first = false;
      return token;
    };
    // A form speaks of every character that the tokens stand for.
    const DecodeOptions how{.continues = params.constraint.has_value()};
    const auto was_cut = [&] { return stream.finish_reason() != FinishReason::stop; };
    answer.text = stream_text(next, model_.text.tokenizer, settings.stops, show, how, was_cut);
    if (answer.text.stop_text) {
      stream.cancel();
      answer.reason = FinishReason::stop;
    } else {
      answer.reason = stream.finish_reason();
    }
    answer.stats = stream.stats();
    answer.stats.prompt_tokens = prompt_tokens;
    answer.stats.generated_tokens = static_cast<int>(answer.text.ids.size());
    answer.signal = interrupts.signal();
    return answer;
  }

  uint64_t last_seed() const {
    return last_seed_;
  }

 private:
  static LoadRequest request(const RunOptions& options) {
    LoadRequest request;
    request.model = options.model;
    request.compute = options.compute;
    request.draft = options.draft;
    request.engine = options.engine;
    request.text.template_file = options.template_file;
    request.text.end_tokens = options.end_tokens;
    request.text.needs_template = !options.raw;
    request.quiet = options.quiet;
    return request;
  }

  // Looks at the whole vocabulary: once for the same texts.
  const std::vector<std::vector<Token>>& breakers(const std::vector<std::string>& texts) {
    if (!breakers_ || breakers_->first != texts) {
      breakers_.emplace(texts, overlapping_sequences(model_.text.tokenizer, texts));
    }
    return breakers_->second;
  }

  Clock::time_point start_;
  LoadedModel model_;
  GenerationSettings settings_;
  std::optional<std::pair<std::vector<std::string>, std::vector<std::vector<Token>>>> breakers_;
  json::object values_;
  std::shared_ptr<const PromptPrefix> prefix_;  // what prompts follow
  uint64_t last_seed_ = 0;
};

// ---- one answer ----

json::object timings(const Runner::Answer& answer, double load_seconds) {
  return {
      {"load_seconds", load_seconds},
      {"prompt_seconds", answer.stats.prompt_seconds},
      {"prompt_tokens_per_second", prompt_rate(answer.stats)},
      {"drafted_tokens", answer.stats.drafted_tokens},
      {"accepted_tokens", answer.stats.accepted_tokens},
      {"generation_seconds", answer.stats.generation_seconds},
      {"generation_tokens_per_second", generation_rate(answer.stats)},
      {"time_to_first_token_seconds", answer.stats.queue_seconds + answer.stats.prompt_seconds},
      {"start_to_first_token_seconds", answer.first_token}};
}

json::object token_json(const Tokenizer& tokenizer, Token id, float logprob) {
  StreamDecoder decoder(tokenizer, {.skip_special = false, .continues = true});
  const std::string text = decoder.add(id);
  return {{"id", id}, {"token", text + decoder.finish()}, {"logprob", logprob}};
}

// As in OpenAI's chat answers, and the ids.
json::array logprobs_json(const Tokenizer& tokenizer, const std::vector<GeneratedToken>& tokens) {
  json::array content;
  for (const GeneratedToken& token : tokens) {
    json::object entry = token_json(tokenizer, token.id, token.logprob);
    json::array top;
    for (const TokenLogprob& other : token.top) {
      top.push_back(token_json(tokenizer, other.id, other.logprob));
    }
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  return content;
}

json::object to_json(Runner& runner, const Runner::Answer& answer) {
  json::object object{
      {"model", runner.model().name},
      {"text", answer.text.text},
      {"token_ids", json::value_from(answer.text.ids)},
      {"finish_reason", name(answer.reason)},
      {"prompt_tokens", answer.stats.prompt_tokens},
      {"cached_tokens", answer.stats.cached_tokens},
      {"generated_tokens", answer.stats.generated_tokens},
      {"seed", runner.last_seed()},
      {"timings", timings(answer, runner.model().load_seconds)},
      {"peak_memory_bytes", peak_rss()}};
  if (answer.text.stop_text) {
    object["stop_text"] = *answer.text.stop_text;
  }
  if (runner.settings().sampling.wants_logprobs()) {
    object["logprobs"] = json::object{
        {"content", logprobs_json(runner.model().text.tokenizer, answer.text.logprobs)}};
  }
  return object;
}

std::string memory_line() {
  std::string line = "peak memory " + human_bytes(peak_rss());
  if (size_t device = peak_device_memory(); device > 0 && gpu_available()) {
    line += fmt::format(", on the GPU {}", human_bytes(device));
  }
  return line;
}

// What the answer depended on besides the prompt.
std::string sampling_line(const Runner& runner) {
  const SamplingParams& sampling = runner.settings().sampling;
  return sampling.temperature == 0
             ? "greedy"
             : fmt::format("temp {:.4g}, seed {}", sampling.temperature, runner.last_seed());
}

std::vector<Token> one_shot_prompt(
    Runner& runner, const RunOptions& options, const std::string& prompt) {
  if (options.prompt_cache) {
    return runner.prompt_after_prefix(prompt, options.raw);
  }
  if (!options.raw && runner.has_template()) {
    return runner.chat_prompt({options.system, {{"user", prompt}}});
  }
  if (!options.raw) {
    if (options.system) {
      throw UserError(
          "--system: {} has no chat template that could take it; write it into the prompt",
          options.model);
    }
    if (!options.quiet) {
      fmt::print(
          stderr, "note: {} has no chat template; the prompt is used as it is\n", options.model);
    }
  }
  return raw_prompt(runner.model().text, prompt);
}

// An answer that only the context ended. Of a limit that the user set himself he knows.
bool context_ended(const Runner::Answer& answer, const GenerationSettings& settings) {
  const int limit = settings.sampling.max_tokens;
  return answer.reason == FinishReason::length &&
         (limit < 0 || answer.stats.generated_tokens < limit);
}

int run_once(const RunOptions& options, const std::string& prompt, Clock::time_point start) {
  Runner runner(options, start);
  if (options.prompt && !options.file && !options.quiet && stdin_has_text()) {
    fmt::print(
        stderr,
        "note: standard input is not read, for the question was given; -f - puts it behind the "
        "question\n");
  }
  TextOutput output;
  ShowText show = [&](std::string_view piece) {
    if (!options.json) {
      output.write(piece);
    }
  };
  auto answer = runner.answer(one_shot_prompt(runner, options, prompt), runner.settings(), show);
  if (options.json) {
    write_stdout(compact_json(to_json(runner, answer)) + "\n");
  } else {
    output.end_line();
  }
  if (!options.quiet && context_ended(answer, runner.settings())) {
    fmt::print(
        stderr,
        "note: the answer is cut off: the context of {} tokens is full (see --ctx-size)\n",
        runner.model().engine->context_length());
  }
  if (options.verbose ||
      (!options.quiet && !options.json && stdout_is_terminal() && stderr_is_terminal())) {
    say("\n{}\n", speed_line(answer.stats));
  }
  if (options.verbose) {
    fmt::print(
        stderr,
        "load {:.2f} s, start to first token {:.2f} s, {}, {}, finished by {}\n",
        runner.model().load_seconds,
        answer.first_token,
        memory_line(),
        sampling_line(runner),
        name(answer.reason));
  }
  if (answer.signal != 0) {
    throw Interrupted(answer.signal);
  }
  return 0;
}

// ---- chat ----

class EngineResponder : public Responder {
 public:
  explicit EngineResponder(Runner& runner) : runner_(runner) {}

  Reply reply(
      const Conversation& conversation,
      const GenerationSettings& settings,
      const ShowText& show) override {
    std::vector<Token> prompt =
        runner_.has_template()
            ? runner_.chat_prompt(conversation)
            : raw_prompt(runner_.model().text, conversation.messages.back().content);
    const int context = runner_.model().engine->context_length();
    if (runner_.has_template() && std::ssize(prompt) >= context) {
      throw UserError(
          "the conversation has {} tokens by now and the context holds {}: /reset begins anew, a "
          "larger --ctx-size holds more",
          prompt.size(),
          context);
    }
    auto answer = runner_.answer(std::move(prompt), settings, show);
    if (answer.signal != 0 && answer.signal != SIGINT) {
      throw Interrupted(answer.signal);  // asks us to leave, not only to be silent
    }
    return {answer.text.text, answer.reason, answer.signal != 0, answer.stats};
  }

 private:
  Runner& runner_;
};

std::string greeting(const Runner& runner, const LoadedModel& model) {
  const ModelInfo& info = model.engine->info();
  std::string line = fmt::format(
      "{}: {}, {:.{}f}{} parameters, {}, context {}",
      model.name,
      info.model_type,
      info.parameters >= 1e9 ? info.parameters / 1e9 : info.parameters / 1e6,
      info.parameters >= 1e9 && info.parameters < 1e10 ? 1 : 0,
      info.parameters >= 1e9 ? "B" : "M",
      human_bytes(info.weight_bytes),
      model.engine->context_length());
  line += "\n";
  if (!runner.has_template()) {
    line += "No chat template: every line is continued by itself.\n";
  }
  return line + "/help lists the commands, Ctrl-D leaves.\n";
}

int run_chat(const RunOptions& options, Clock::time_point start) {
  if (options.prompt_cache) {
    throw UserError(
        "--prompt-cache-file {}: a chat cannot follow it; give a prompt", *options.prompt_cache);
  }
  if (options.json) {
    throw UserError("--json: there is no prompt to answer; give one, or pipe it to standard input");
  }
  std::vector<std::string> completions;
  for (const std::string& name : chat_command_names()) {
    completions.push_back("/" + name);
  }
  for (const Setting& setting : generation_settings()) {
    completions.push_back("/set " + std::string(setting.name));
  }
  // Before the model is loaded: what is typed while it loads is the first message.
  LineEditor lines(default_history_file(), std::move(completions));
  Runner runner(options, start);
  if (options.system && !runner.has_template()) {
    throw UserError("--system: {} has no chat template that could take it", options.model);
  }
  EngineResponder responder(runner);
  TextOutput output;
  auto show = [&](std::string_view text) { output.write(text); };
  if (!options.quiet) {
    show(greeting(runner, runner.model()));
  }
  Chat::Options chat_options{
      .model = runner.model().name,
      .system = options.system,
      .verbose = options.verbose,
      .keep_turns = runner.has_template()};
  Chat chat(chat_options, runner.settings(), responder, lines, show, show);
  chat.run();
  if (options.verbose) {
    say("{}\n", memory_line());
  }
  return 0;
}

// What is asked: the prompt, then the file's text; else what is piped in. Nothing: a chat.
std::optional<std::string> find_prompt(const RunOptions& options) {
  std::optional<std::string> prompt = options.prompt;
  if (options.file) {
    std::string text = read_prompt_file(*options.file);
    prompt = prompt ? *prompt + "\n\n" + text : text;
  } else if (!prompt && !stdin_is_terminal()) {
    prompt = read_stdin();
    if (prompt->ends_with('\n') && !options.raw) {
      prompt->pop_back();  // the one that echo adds
    }
    if (prompt->empty()) {
      throw UserError("no prompt: none is given as an argument, and standard input is empty");
    }
  }
  return prompt;
}

}  // namespace

Action add_run(CLI::App& app) {
  auto flags = std::make_shared<RunFlags>(app);
  auto start = Clock::now();
  return [flags, start] {
    RunOptions options = flags->finish();
    if (auto prompt = find_prompt(options)) {
      return run_once(options, *prompt, start);
    }
    return run_chat(options, start);
  };
}

}  // namespace quince::cli
