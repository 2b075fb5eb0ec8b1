#include "cli/serve_options.h"

#include <algorithm>
#include <filesystem>
#include <limits>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cli/args.h"
#include "cli/foreign_flags.h"
#include "cli/prompt.h"

namespace quince::cli {

namespace {

constexpr int64_t kMostContext = int64_t{1} << 30;
constexpr double kMostSeconds = 86400;

// "a,b,c", and the flag may be given again.
void add_list(const std::string& flag, const std::string& value, std::vector<std::string>& to) {
  size_t begin = 0;
  while (begin <= value.size()) {
    const size_t end = std::min(value.find(',', begin), value.size());
    if (end == begin) {
      throw UserError("{} '{}': want names with commas between them, none empty", flag, value);
    }
    to.push_back(value.substr(begin, end - begin));
    begin = end + 1;
  }
}

// The page of origins as llama-server and mlx_lm.server take them.
std::string cors_origin(const std::string& flag, const std::string& value) {
  if (value.find(',') != std::string::npos) {
    throw UserError("{} '{}': want one origin, or * for any", flag, value);
  }
  return value == "none" ? "" : value == "localhost" ? "local" : value;
}

// Megabytes, as llama-server has it, when no unit is given; -1: no limit.
size_t cache_ram(const std::string& flag, const std::string& value) {
  if (value == "-1") {
    return std::numeric_limits<size_t>::max() / 2;
  }
  const bool plain = !value.empty() && value.find_first_not_of("0123456789") == std::string::npos;
  if (plain && value.find_first_not_of('0') == std::string::npos) {
    return 0;
  }
  return parse_bytes(flag, plain ? value + "M" : value);
}

}  // namespace

ServeFlags::ServeFlags(CLI::App& app, Kind kind) : kind_(kind) {
  if (kind == Kind::gateway) {
    add_gateway(app);
    return;
  }
  FlagGroup arguments(app, "Arguments");
  arguments.positional(
      "MODEL",
      model_,
      "A GGUF file (any part of a split one), a folder, a Hugging Face repo id that was pulled, or "
      "an alias");
  arguments.text("-m,--model,--hf-repo", "MODEL", model_flag_, "The model, as a flag");
  add_http(app);
  add_answers(app);
  add_engine(app);
  add_compute_flags(app, options_.compute);
  add_draft_flags(app, options_.draft);
  FlagGroup output(app, "Output");
  output.on("-q,--quiet", options_.quiet, "No notes and no progress bar");
  output.value(
      "--log-format",
      "FORMAT",
      "A line for every request and every answer on standard error: json or text (default: none)",
      [this](const std::string& flag, const std::string& value) {
        if (value != "json" && value != "text") {
          throw UserError("{} '{}': want json or text", flag, value);
        }
        options_.log_format = value;
      });
  output.file(
      "--log-file",
      "FILE",
      options_.log_file,
      "These lines go to the end of this file, which is opened again at SIGHUP");
  output.on("--log-prompts", options_.log_prompts, "What is asked is in these lines too");
  output.on("--log-jsonl", log_jsonl_, "As --log-format json");
  add_foreign_serve_flags(app);
  app.footer(
      "Clients of OpenAI's API use http://HOST:PORT/v1 as their base URL. Sampling flags are the "
      "defaults of requests that do not say it themselves.\n\n"
      "Examples:\n"
      "  quince serve SmolLM2-135M-Instruct.Q4_1.gguf\n"
      "  quince serve mlx-community/Qwen3-0.6B-4bit --port 9000 --alias qwen --ctx-size 8k\n"
      "  quince serve MODEL --host 0.0.0.0 --api-key-file keys.txt");
}

void ServeFlags::add_gateway(CLI::App& app) {
  add_http(app);
  FlagGroup output(app, "Output");
  output.on("-q,--quiet", options_.quiet, "No notes");
  app.footer(
      "The configuration names upstreams (any server of OpenAI's API), which models they answer, "
      "and the keys of those who may ask; docs/gateway.md tells all of it. It is read again when "
      "it "
      "changes, and on SIGHUP.\n\n"
      "Example:\n"
      "  quince gateway --config quince.toml --host 0.0.0.0");
}

void ServeFlags::add_http(CLI::App& app) {
  FlagGroup http(app, "Server");
  http.file(
      "--config",
      "FILE",
      options_.gateway_config,
      "Keys, limits and upstreams (quince.toml; see docs/gateway.md)");
  http.value(
      "--host",
      "ADDRESS",
      "Where to listen (default: 127.0.0.1; 0.0.0.0: everywhere; a path with a slash: a Unix "
      "socket)",
      [this](const std::string&, const std::string& value) {
        if (value.find('/') != std::string::npos) {
          options_.http.unix_socket = value;
        } else {
          options_.http.host = value;
        }
      });
  http.value(
      "--port",
      "N",
      "Port (default: 8080; 0: one that is free)",
      [this](const std::string& flag, const std::string& value) {
        options_.http.port = static_cast<int>(parse_integer(flag, value, 0, 65535));
      });
  if (kind_ == Kind::model) {
    http.value(
        "-a,--alias",
        "NAME,...",
        "What clients call the model (default: its file's or repository's name); '*': any name",
        [this](const std::string& flag, const std::string& value) {
          add_list(flag, value, options_.aliases);
        });
  }
  http.value(
      "--api-key",
      "KEY,...",
      "Requests need one of these keys (better in a file: command lines can be seen by others)",
      [this](const std::string& flag, const std::string& value) {
        add_list(flag, value, options_.keys);
      });
  http.file(
      "--api-key-file",
      "FILE",
      options_.key_file,
      "One key a line; a line that begins with # is none");
  http.file(
      "--ssl-cert-file",
      "FILE",
      certificate_file_,
      "HTTPS with this certificate (PEM, those of its authorities behind it); needs its key");
  http.file("--ssl-key-file", "FILE", certificate_key_file_, "The certificate's private key (PEM)");
  http.value(
      "--cors-origin,--cors-origins,--allowed-origins",
      "ORIGIN",
      "Web pages of this origin may ask (default: local, those of this machine; *: any; none: no "
      "page may)",
      [this](const std::string& flag, const std::string& value) {
        options_.app.cors_origin = cors_origin(flag, value);
      });
  http.on("--strict", options_.app.strict, "Fields that are not known are errors");
  http.value(
      "--timeout",
      "SECONDS",
      "A client that takes nothing for so long is left (default: 60)",
      [this](const std::string& flag, const std::string& value) {
        options_.http.write_time = std::chrono::milliseconds(
            static_cast<int64_t>(parse_real(flag, value, 0.1, kMostSeconds) * 1000));
      });
  http.value(
      "--sse-ping-interval",
      "SECONDS",
      "A stream without news says so after so long (default: 10; -1: never)",
      [this](const std::string& flag, const std::string& value) {
        const double seconds = parse_real(flag, value, -1, kMostSeconds);
        options_.http.keep_alive = std::chrono::milliseconds(static_cast<int64_t>(
            (seconds > 0 ? std::max(seconds, 0.1) : kMostSeconds * 365) * 1000));
      });
  http.value(
      "--drain",
      "SECONDS",
      "How long running requests may go on after SIGTERM or Ctrl-C (default: 30)",
      [this](const std::string& flag, const std::string& value) {
        options_.drain_seconds = parse_real(flag, value, 0, kMostSeconds);
      });
  http.on("--no-slots", no_slots_, "GET /slots does not tell what runs");
  if (kind_ == Kind::model) {
    http.text(
        "--slot-save-path",
        "DIR",
        slot_folder_,
        "POST /slots/ID?action=save|restore keeps what slots remember in files there");
  }
  http.on("--no-metrics", no_metrics_, "GET /metrics tells nothing");
  http.on("--no-page,--no-webui,--no-ui", no_page_, "There is no chat page at /");
  http.off("--slots", no_slots_);
  http.off("--metrics", no_metrics_);
  http.off("--webui,--ui", no_page_);
}

void ServeFlags::add_answers(CLI::App& app) {
  FlagGroup answer(app, "Answer");
  FlagGroup sampling(app, "More about sampling");
  for (const Setting& setting : generation_settings()) {
    const Setting* row = &setting;
    if (row->name == "stop" || row->name == "bad-words") {
      continue;  // a request's own
    }
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
      "A token (text or id) that ends answers, besides the model's own; may be given several times",
      [this](const std::string&, const std::string& value) {
        options_.end_tokens.push_back(value);
      });
  answer.on("--ignore-eos", options_.ignore_end, "The end tokens never come");
  answer.value(
      "--reasoning-budget",
      "N",
      "Tokens of reasoning before the answer is asked for (default: -1, no limit; 0: none)",
      [this](const std::string& flag, const std::string& value) {
        options_.reasoning_budget = static_cast<int>(parse_integer(flag, value, -1, 1 << 30));
      });
  answer.value(
      "--pooling",
      "KIND",
      "What embeddings are made of: last (default), the state of the last token, or mean, of all",
      [this](const std::string& flag, const std::string& value) {
        if (value != "last" && value != "mean") {
          throw UserError("{} '{}': want last or mean", flag, value);
        }
        options_.pooling = value == "mean" ? Pooling::mean : Pooling::last;
      });
  FlagGroup quiet(app, "");
  quiet.value("--embd-normalize", "N", "", [](const std::string& flag, const std::string& value) {
    if (value != "2") {
      throw UserError("{} {}: embeddings have length 1, which is 2", flag, value);
    }
  });
  quiet.value(
      "--reasoning-format", "FORMAT", "", [](const std::string& flag, const std::string& value) {
        if (value != "auto" && value != "deepseek") {
          throw UserError(
              "{} {}: reasoning is told apart from the answer, as auto and deepseek have it; "
              "/completion gives the text as it is",
              flag,
              value);
        }
      });
  answer.file(
      "--chat-template-file",
      "FILE",
      options_.template_file,
      "Use this Jinja template, not the model's own");
  answer.text(
      "--chat-template-kwargs,--chat-template-config,--chat-template-args",
      "JSON",
      options_.template_values,
      "Values for the template, such as '{\"enable_thinking\": false}'");
}

void ServeFlags::add_engine(CLI::App& app) {
  FlagGroup engine(app, "Engine");
  engine.value(
      "-c,--ctx-size",
      "N",
      "Most tokens of a prompt and its answer (default: what the model was made for)",
      [this](const std::string& flag, const std::string& value) {
        options_.engine.context_length =
            static_cast<int>(parse_count(flag, value, 0, kMostContext));
      });
  engine.value(
      "--max-kv-size",
      "N",
      "Keep at most N tokens of a sequence in the cache: the oldest ones are forgotten",
      [this](const std::string& flag, const std::string& value) {
        options_.engine.cache.max_size =
            static_cast<int>(parse_count(flag, value, 16, kMostContext));
      });
  engine.value(
      "--parallel,--decode-concurrency",
      "N",
      "Requests that advance together (default, and -1: 32)",
      [this](const std::string& flag, const std::string& value) {
        options_.engine.max_running = value == "-1"
                                          ? EngineOptions().max_running
                                          : static_cast<int>(parse_integer(flag, value, 1, 4096));
      });
  engine.value(
      "--max-queue",
      "N",
      "Requests that may wait beside those; more are refused with 503 (default: 4096)",
      [this](const std::string& flag, const std::string& value) {
        options_.engine.max_waiting = static_cast<int>(parse_integer(flag, value, 0, 1 << 20));
      });
  engine.value(
      "--prefill-chunk,--prefill-step-size,--batch-size,--ubatch-size",
      "N",
      "Prompt tokens computed at once (default: 512)",
      [this](const std::string& flag, const std::string& value) {
        options_.engine.prefill_chunk = static_cast<int>(parse_count(flag, value, 1, 1 << 20));
      });
  engine.value(
      "--kv-tokens",
      "N",
      "Tokens that all sequences may hold together (default: no limit)",
      [this](const std::string& flag, const std::string& value) {
        options_.engine.kv_tokens = parse_count(flag, value, 32, int64_t{1} << 40);
      });
  engine.value(
      "--kv-memory",
      "SIZE",
      "Memory for keys and values of all, such as 2GB (default: no limit)",
      [this](const std::string& flag, const std::string& value) {
        options_.engine.kv_bytes = parse_bytes(flag, value);
      });
  engine.file(
      "--prompt-cache-file",
      "FILE",
      options_.prompt_cache,
      "A prompt that was computed before (by quince cache build, or a saved slot): prompts that "
      "begin with its tokens go on from it");
  engine.value(
      "--cache-ram",
      "SIZE",
      "Memory for keys and values of what has ended, for those who begin the same way (default: "
      "as much as the weights or one context, 64MB to 1GB); a plain number is megabytes, -1: no "
      "limit",
      [this](const std::string& flag, const std::string& value) {
        options_.engine.kept_bytes = cache_ram(flag, value);
      });
  engine.value(
      "--prompt-cache-bytes",
      "SIZE",
      "The same; a plain number is bytes",
      [this](const std::string& flag, const std::string& value) {
        options_.engine.kept_bytes = parse_bytes(flag, value);
      });
}

namespace {

// One that no header could carry would lock everybody out.
void check_key(std::string_view key, const std::string& file) {
  constexpr size_t kLongest = 1024;
  const bool plain =
      std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c < '\x7f'; });
  if (!plain || key.size() > kLongest) {
    throw UserError(
        "--api-key-file {}: one of its keys {}, want one a line, of up to {} printable ASCII "
        "characters without spaces",
        file,
        plain ? fmt::format("has {} characters", key.size()) : "has spaces or other characters",
        kLongest);
  }
}

}  // namespace

std::vector<std::string> all_keys(const ServeOptions& options) {
  std::vector<std::string> keys = options.keys;
  if (!options.key_file) {
    return keys;
  }
  const std::string text = read_prompt_file(*options.key_file);
  const size_t before = keys.size();
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find_first_of("\r\n", begin), text.size());
    std::string_view line = std::string_view(text).substr(begin, end - begin);
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    line.remove_suffix(line.size() - line.find_last_not_of(" \t") - 1);
    if (!line.empty() && line.front() != '#') {
      check_key(line, *options.key_file);
      keys.emplace_back(line);
    }
    begin = end + 1;
  }
  if (keys.size() == before) {
    throw UserError("--api-key-file {}: there is no key in it", *options.key_file);
  }
  return keys;
}

ServeOptions ServeFlags::finish() const {
  ServeOptions options = options_;
  if (model_ && model_flag_) {
    throw UserError("'{}': one argument too many; the model is given by --model", *model_);
  }
  if (kind_ == Kind::gateway && !options.gateway_config) {
    throw UserError("no --config given: a gateway needs a file that names its upstreams");
  }
  options.model = model_flag_ ? *model_flag_ : model_.value_or("");
  if (options.model.empty() && kind_ == Kind::model) {
    throw UserError("no MODEL given (see: quince serve --help)");
  }
  options.app.api_keys = all_keys(options);
  if (certificate_file_.has_value() != certificate_key_file_.has_value()) {
    throw UserError(
        "{}: HTTPS needs {} too",
        certificate_file_ ? "--ssl-cert-file " + *certificate_file_
                          : "--ssl-key-file " + *certificate_key_file_,
        certificate_file_ ? "--ssl-key-file, the file of its private key"
                          : "--ssl-cert-file, the file of its certificate");
  }
  options.http.certificate_file = certificate_file_.value_or("");
  options.http.key_file = certificate_key_file_.value_or("");
  if (log_jsonl_) {
    options.log_format = "json";
  }
  if (options.log_format.empty() && (options.log_prompts || options.log_file)) {
    throw UserError("--log-prompts and --log-file need --log-format json or text");
  }
  if (slot_folder_) {
    std::error_code error;
    if (!std::filesystem::is_directory(*slot_folder_, error)) {
      throw UserError("--slot-save-path '{}': is no folder; make it first", *slot_folder_);
    }
    options.app.slot_folder = *slot_folder_;
  }
  options.app.slots = !no_slots_;
  options.app.metrics = !no_metrics_;
  options.app.page = !no_page_;
  return options;
}

}  // namespace quince::cli
