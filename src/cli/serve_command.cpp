// quince serve: a model behind HTTP. quince gateway: only models that others serve.
#include <cstdlib>
#include <filesystem>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/http_service.h"
#include "cli/loaded_model.h"
#include "cli/say.h"
#include "cli/serve_options.h"
#include "cli/service_notifier.h"
#include "cli/terminal.h"
#include "server/app.h"
#include "server/http.h"
#include "server/request_log.h"
#include "weights/json_file.h"

namespace quince::cli {

namespace {

// What clients call a model that nobody has named: a repository's own name, else the file's or the
// folder's, without its ending.
std::string model_id(const std::string& model) {
  std::error_code ignored;
  if (!std::filesystem::exists(model, ignored)) {
    return model;
  }
  std::filesystem::path path = std::filesystem::absolute(model, ignored).lexically_normal();
  if (!path.has_filename()) {
    path = path.parent_path();
  }
  return path.extension() == ".gguf" ? path.stem().string() : path.filename().string();
}

std::vector<std::string> names(const ServeOptions& options) {
  return options.aliases.empty() ? std::vector<std::string>{model_id(options.model)}
                                 : options.aliases;
}

std::shared_ptr<server::ServedModel> served(const ServeOptions& options, LoadedModel loaded) {
  auto model = std::make_shared<server::ServedModel>(std::move(loaded.text));
  const std::vector<std::string> called = names(options);
  model->id = called.front();
  model->aliases.assign(called.begin() + 1, called.end());
  model->source = options.model;
  model->created = server::unix_seconds();
  GenerationSettings settings;
  for (const std::string& line :
       apply_generation_config(loaded.generation_config, settings.sampling)) {
    say("note: {}\n", printable(line));
  }
  for (const auto& [setting, value] : options.settings) {
    setting->set(settings, setting->name, value);
  }
  model->sampling = settings.sampling;
  model->sampling.end_tokens = model->text.end_tokens;
  model->sampling.ignore_eos = options.ignore_end;
  model->dry_breakers = settings.dry_breakers;
  if (options.template_values) {
    model->template_values = parse_json_object(*options.template_values, "--chat-template-kwargs");
  }
  model->pooling = options.pooling;
  model->reasoning_budget = options.reasoning_budget;
  model->parallel = options.engine.max_running;
  model->most_answers = options.engine.max_running + options.engine.max_waiting;
  model->engine = std::move(loaded.engine);
  model->engine->set_tokenizer(model->text.tokenizer);
  return model;
}

server::AppOptions app_options(const ServeOptions& options) {
  server::AppOptions out = options.app;
  out.version = std::string(version());
  if (!options.log_format.empty()) {
    out.log = std::make_shared<server::RequestLog>(
        options.log_format == "json" ? server::LogFormat::json : server::LogFormat::text,
        options.log_prompts,
        options.log_file.value_or(""));
  }
  return out;
}

ServiceNotifier service_notifier() {
  const char* socket = std::getenv("NOTIFY_SOCKET");
  return ServiceNotifier(socket != nullptr ? socket : "");
}

int serve(const ServeOptions& options) {
  Signals signals;
  const ServiceNotifier service = service_notifier();
  server::App app(app_options(options));
  const auto gateway = make_gateway(options, names(options));
  if (gateway) {
    app.set_gateway(*gateway, false);
  }
  // Before anything is loaded: a port that is taken is known at once, and /health tells how far
  // loading is.
  server::HttpServer http(options.http, app);
  app.count_connections([&http] { return http.connections(); });
  const auto hangup = signals.on_hangup([&] { reload(options, http, app, gateway.get()); });
  http.start();
  LoadRequest request;
  request.model = options.model;
  request.compute = options.compute;
  request.draft = options.draft;
  request.engine = options.engine;
  request.text.template_file = options.template_file;
  request.text.end_tokens = options.end_tokens;
  request.quiet = options.quiet;
  request.progress = [&app, &service, told = -1.0](double fraction) mutable {
    app.set_progress(fraction);
    if (fraction - told >= 0.1) {
      told = fraction;
      service.loading(fraction);
    }
  };
  LoadedModel loaded = load(request);
  const double seconds = loaded.load_seconds;
  if (!options.quiet) {
    for (const std::string& note : loaded.notes) {
      say("note: {}\n", printable(note));
    }
  }
  const auto model = served(options, std::move(loaded));
  if (options.prompt_cache) {
    const size_t tokens = model->engine->restore_prompt(*options.prompt_cache).size();
    if (!options.quiet) {
      fmt::print(
          stderr,
          "note: {}: {} tokens are known to prompts that begin with them\n",
          printable(*options.prompt_cache),
          tokens);
    }
  }
  signals.begin();
  app.set_model(model);
  write_stdout(fmt::format(
      "{} listens on {} (context {}, {} at once, loaded in {:.2f} s)\n",
      model->id,
      http.url(),
      model->engine->context_length(),
      model->parallel,
      seconds));
  service.ready(fmt::format("{} listens on {}", model->id, http.url()));
  serve_until_signal(http, app, signals, service, options);
  return 0;
}

// The gateway alone.
int serve_gateway(const ServeOptions& options) {
  Signals signals;
  const ServiceNotifier service = service_notifier();
  server::App app(app_options(options));
  const auto gateway = make_gateway(options, {});
  app.set_gateway(*gateway, true);
  server::HttpServer http(options.http, app);
  app.count_connections([&http] { return http.connections(); });
  const auto hangup = signals.on_hangup([&] { reload(options, http, app, gateway.get()); });
  http.start();
  signals.begin();
  write_stdout(fmt::format(
      "gateway listens on {} (models: {})\n",
      http.url(),
      fmt::join(gateway->models(nullptr), ", ")));
  service.ready(fmt::format("the gateway listens on {}", http.url()));
  serve_until_signal(http, app, signals, service, options);
  return 0;
}

}  // namespace

Action add_serve(CLI::App& app) {
  auto flags = std::make_shared<ServeFlags>(app);
  return [flags] { return serve(flags->finish()); };
}

Action add_gateway(CLI::App& app) {
  auto flags = std::make_shared<ServeFlags>(app, ServeFlags::Kind::gateway);
  return [flags] { return serve_gateway(flags->finish()); };
}

}  // namespace quince::cli
