#include "server/app.h"

#include <algorithm>
#include <array>
#include <random>

#include <fmt/ranges.h>

#include "base/error.h"
#include "gateway/secret.h"
#include "server/http_text.h"
#include "server/request_log.h"
#include "server/routes.h"
#include "system/memory.h"

namespace quince::server {

namespace {

void add_header(Response& response, std::string name, std::string value) {
  response.headers.emplace_back(std::move(name), std::move(value));
}

}  // namespace

int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string new_id(std::string_view prefix) {
  static constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device random;
  std::string id(prefix);
  for (int i = 0; i < 24; ++i) {
    id += kLetters[random() % kLetters.size()];
  }
  return id;
}

App::App(AppOptions options) : options_(std::move(options)), started_(unix_seconds()) {
  set_api_keys(options_.api_keys);
}

void App::set_api_keys(std::vector<std::string> keys) {
  auto fresh = std::make_shared<const std::vector<std::string>>(std::move(keys));
  const std::scoped_lock lock(mutex_);
  api_keys_ = std::move(fresh);
}

void App::set_progress(double fraction) {
  progress_ = fraction;
}

void App::set_model(std::shared_ptr<ServedModel> model) {
  const std::scoped_lock lock(mutex_);
  slots_ = std::make_shared<Slots>(model->parallel);
  model_ = std::move(model);
  progress_ = 1;
}

void App::count_connections(std::function<int()> connections) {
  const std::scoped_lock lock(mutex_);
  connections_ = std::move(connections);
}

std::shared_ptr<ServedModel> App::loaded() const {
  const std::scoped_lock lock(mutex_);
  return model_;
}

std::shared_ptr<Slots> App::slots() const {
  const std::scoped_lock lock(mutex_);
  return slots_;
}

std::shared_ptr<ServedModel> App::model(const std::string& name) const {
  std::shared_ptr<ServedModel> model = loaded();
  if (!model && only_gateway_) {
    throw ApiError(
        404,
        "not_found_error",
        "no model is loaded here: this is a gateway, which answers POST /v1/... only",
        "model",
        "model_not_found");
  }
  if (!model) {
    throw ApiError(
        503,
        "overloaded_error",
        fmt::format("the model is being loaded ({:.0f}%); try again soon", progress_ * 100),
        "",
        "loading");
  }
  const auto is = [&](const std::string& alias) { return alias == name || alias == "*"; };
  if (!name.empty() && name != model->id && name != model->source &&
      std::none_of(model->aliases.begin(), model->aliases.end(), is)) {
    throw ApiError(
        404,
        "not_found_error",
        fmt::format("there is no model '{}' here; there is {}", name, model->id),
        "model",
        "model_not_found");
  }
  return model;
}

// "Authorization: Bearer KEY", or "x-api-key: KEY" as Anthropic's clients send it.
App::Caller App::caller(const HttpRequest& request) const {
  std::string_view given = request.header("Authorization");
  constexpr std::string_view kBearer = "Bearer ";
  if (given.size() > kBearer.size() && same_word(given.substr(0, kBearer.size()), kBearer)) {
    given.remove_prefix(kBearer.size());
  } else {
    given = request.header("x-api-key");
  }
  std::shared_ptr<const std::vector<std::string>> keys;
  {
    const std::scoped_lock lock(mutex_);
    keys = api_keys_;
  }
  Caller caller;
  for (const std::string& key : *keys) {
    caller.known = gateway::same_secret(given, key) || caller.known;  // looks at all of them
  }
  if (gateway_ != nullptr && gateway_->has_keys()) {
    caller.key = gateway_->identify(given);
    caller.known = caller.known || caller.key != nullptr;
  } else {
    caller.known = caller.known || keys->empty();
  }
  return caller;
}

void App::set_gateway(GatewayService& gateway, bool only) {
  gateway_ = &gateway;
  only_gateway_ = only;
  gateway.set_local([this](const HttpRequest& request) { return handle_here(request); });
}

std::vector<std::string> App::models_elsewhere(const HttpRequest& from) const {
  return gateway_ == nullptr ? std::vector<std::string>()
                             : gateway_->models(caller(from).key.get());
}

std::string App::allowed_origin(const HttpRequest& request) const {
  if (options_.cors_origin != "local") {
    return options_.cors_origin;
  }
  const std::string_view origin = request.header("Origin");
  const size_t scheme = origin.find("://");
  if (scheme == std::string_view::npos) {
    return "";
  }
  const std::string_view host = origin.substr(scheme + 3);
  for (const std::string_view name : {"localhost", "127.0.0.1", "[::1]"}) {
    if (host.starts_with(name) && (host.size() == name.size() || host[name.size()] == ':')) {
      return std::string(origin);
    }
  }
  return "";
}

std::optional<Response> App::refuse(const HttpRequest& head) {
  if (head.method == "OPTIONS" && !allowed_origin(head).empty()) {
    return finished({.status = 204}, head);
  }
  const RouteMatch match = find_route(head.method, head.path);
  if (!(match.route != nullptr && match.route->open) && !caller(head).known) {
    ErrorReport missing = report(401, "the API key is missing or wrong");
    missing.code = "invalid_api_key";
    return finished(error_response(missing, error_style(head.path)), head);
  }
  const bool may_be_elsewhere =
      gateway_ != nullptr && head.method == "POST" && head.path.starts_with("/v1/");
  if (match.route == nullptr && may_be_elsewhere) {
    return std::nullopt;
  }
  if (match.allowed.empty()) {
    ErrorReport unknown = report(404, fmt::format("there is no route {}", head.path));
    return finished(error_response(unknown, error_style(head.path)), head);
  }
  if (match.route == nullptr) {
    Response response = error_response(
        report(405, fmt::format("{} takes {}, not {}", head.path, match.allowed, head.method)),
        error_style(head.path));
    add_header(response, "Allow", match.allowed);
    return finished(std::move(response), head);
  }
  return std::nullopt;
}

// Questions about the state of things; what is to be computed on comes as POST.
bool App::is_quick(const HttpRequest& head) {
  constexpr size_t kSmall = size_t{32} << 10;
  return head.method == "GET" || head.method == "HEAD" ||
         (only_gateway_ && head.body.size() <= kSmall);
}

Response App::handle(HttpRequest request) {
  HttpRequest head;  // of what finished() looks at, should the request go elsewhere
  head.method = request.method;
  head.path = request.path;
  head.headers = request.headers;
  if (options_.log) {
    head.body = request.body;
  }
  try {
    if (gateway_ != nullptr && request.method == "POST") {
      const Caller caller = this->caller(request);
      if (!caller.known) {  // the key was taken away meanwhile
        throw ApiError(401, "authentication_error", "the API key is missing or wrong");
      }
      if (auto response = gateway_->take(request, caller.key)) {
        return finished(std::move(*response), head);
      }
    }
    return finished(handle_here(request), request);
  } catch (...) {
    return finished(error_response(report(std::current_exception()), error_style(head.path)), head);
  }
}

Response App::handle_here(const HttpRequest& request) {
  try {
    const RouteMatch match = find_route(request.method, request.path);
    if (match.route == nullptr) {
      throw ApiError(404, "not_found_error", fmt::format("there is no route {}", request.path));
    }
    return match.route->handle({*this, request, match.argument});
  } catch (...) {
    return error_response(report(std::current_exception()), error_style(request.path));
  }
}

Response App::error(int status, const std::string& message, const HttpRequest& head) {
  return finished(error_response(report(status, message), error_style(head.path)), head);
}

void App::sending(int status) {
  metrics_.responded(status);
}

// What every response has.
Response App::finished(Response response, const HttpRequest& request) {
  if (options_.log) {
    options_.log->responded(request, response);
  }
  const std::string origin = allowed_origin(request);
  if (origin.empty()) {
    return response;
  }
  add_header(response, "Access-Control-Allow-Origin", origin);
  if (origin != "*") {
    add_header(response, "Vary", "Origin");
  }
  if (request.method == "OPTIONS") {
    add_header(response, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    const std::string_view wanted = request.header("Access-Control-Request-Headers");
    add_header(
        response,
        "Access-Control-Allow-Headers",
        wanted.empty() ? "Authorization, Content-Type" : std::string(wanted));
    add_header(response, "Access-Control-Max-Age", "86400");
  } else {
    add_header(
        response, "Access-Control-Expose-Headers", "X-Request-Id, X-Quince-Ignored, Retry-After");
  }
  return response;
}

void App::refuse_unknown(const std::vector<std::string>& names) const {
  if (options_.strict && !names.empty()) {
    throw bad_field(
        names.front(),
        "{}: there is no such field (--strict refuses what it does not know)",
        names.front());
  }
}

void App::note_ignored(const std::vector<std::string>& names, Response& response) const {
  if (!names.empty()) {
    std::string list = fmt::format("{}", fmt::join(names, ", "));
    list.resize(std::min<size_t>(list.size(), 1000));
    std::replace_if(
        list.begin(), list.end(), [](unsigned char c) { return c < 32 || c > 126; }, '?');
    add_header(response, "X-Quince-Ignored", std::move(list));
  }
}

namespace {

// Too long a prompt is the client's to mend, and said before anything is computed.
void check_length(
    std::vector<Token>& prompt, const GenerationParams& params, const Engine& engine) {
  const auto keep = static_cast<size_t>(params.truncate_prompt);
  if (keep > 0 && prompt.size() > keep) {
    prompt.erase(prompt.begin(), prompt.end() - static_cast<std::ptrdiff_t>(keep));
  }
  const auto context = static_cast<size_t>(engine.context_length());
  if (prompt.size() + (params.sampling.max_tokens != 0 ? 1 : 0) > context) {
    throw ApiError(
        400,
        "invalid_request_error",
        fmt::format(
            "the prompt has {} tokens and the context holds {}, prompt and answer together: "
            "shorten the prompt, or start the server with a larger --ctx-size",
            prompt.size(),
            context),
        params.prompt_field,
        "context_length_exceeded");
  }
  if (prompt.empty()) {
    throw bad_field(params.prompt_field, "the prompt is empty: it needs at least one token");
  }
}

// More answers than may ever run and wait: coming again later would not help.
void check_count(const GenerationRequest& request) {
  const auto answers = static_cast<int64_t>(request.prompts.size()) * request.params.best_of;
  const int most = request.model->most_answers;
  if (most > 0 && answers > most) {
    throw bad_field(
        "n",
        "the request asks for {} answers ({} prompts, {} of each), and at most {} may run and wait "
        "here: ask for fewer, or start the server with a larger --max-queue",
        answers,
        request.prompts.size(),
        request.params.best_of,
        most);
  }
}

// Counts on a key what another observer is told too.
class KeyObserver : public GenerationObserver {
 public:
  KeyObserver(
      std::shared_ptr<gateway::KeyUse> use,
      std::unique_ptr<GenerationObserver> next,
      const ActiveRequest& request)
      : use_(std::move(use)), next_(std::move(next)), left_(request.streams.size()) {
    use_->add({.prompt = request.prompt_tokens});
  }
  void tokens(int count) override {
    generated_ += count;
    next_->tokens(count);
  }
  void end(const AnswerEnd& end) override {
    next_->end(end);
    if (--left_ == 0) {
      finish();
    }
  }
  void failed() override {
    next_->failed();
    finish();
  }
  void gone() override {
    next_->gone();
  }
  ~KeyObserver() override {
    finish();
  }
  KeyObserver(const KeyObserver&) = delete;
  KeyObserver& operator=(const KeyObserver&) = delete;

 private:
  void finish() {
    use_->add({.generated = std::exchange(generated_, 0)});
    use_->done();
  }

  std::shared_ptr<gateway::KeyUse> use_;
  std::unique_ptr<GenerationObserver> next_;
  size_t left_;
  int64_t generated_ = 0;
};

std::unique_ptr<GenerationObserver> counted_on(
    const std::shared_ptr<gateway::KeyUse>& use,
    std::unique_ptr<GenerationObserver> observer,
    const ActiveRequest& request) {
  return use ? std::make_unique<KeyObserver>(use, std::move(observer), request)
             : std::move(observer);
}

// What is wrong with the form of the answer is the fault of the field that gave it.
TokenStream submit(
    const GenerationRequest& request, const std::vector<Token>& prompt, SamplingParams sampling) {
  const bool held = sampling.constraint.has_value();
  try {
    return request.model->engine->submit(prompt, std::move(sampling), request.params.options);
  } catch (const BusyError&) {
    throw;
  } catch (const UserError& error) {
    if (!held || request.params.form_field.empty()) {
      throw;
    }
    throw bad_field(request.params.form_field, "{}: {}", request.params.form_field, error.what());
  }
}

}  // namespace

Response App::generate(GenerationRequest request, const HttpRequest& from) {
  auto active = std::make_shared<ActiveRequest>();
  active->id = request.id;
  active->route = from.path;
  if (from.key_use) {
    request.params.options.tenant = from.key_use->name();
    request.params.options.priority += from.key_use->priority();
  }
  std::vector<int> prompt_of;
  std::vector<SlotUse> places;
  const std::shared_ptr<Slots> slots = this->slots();
  for (std::vector<Token>& prompt : request.prompts) {
    check_length(prompt, request.params, *request.model->engine);
    active->prompt_tokens += static_cast<int>(prompt.size());
  }
  check_count(request);
  for (size_t p = 0; p < request.prompts.size(); ++p) {
    for (int i = 0; i < request.params.best_of; ++i) {
      SamplingParams sampling = request.params.sampling;
      if (sampling.seed) {
        *sampling.seed += static_cast<uint64_t>(i);
      }
      active->streams.push_back(submit(request, request.prompts[p], std::move(sampling)));
      prompt_of.push_back(static_cast<int>(p));
      places.emplace_back(slots, request.params.slot, request.prompts[p]);
      active->slots.push_back(places.back().slot());
    }
  }
  request.format->set_slots(active->slots);
  const bool streamed = request.params.stream;
  auto observer = counted_on(from.key_use, metrics_.observe(active->prompt_tokens), *active);
  if (options_.log) {
    observer = options_.log->observe(request.id, active->prompt_tokens, std::move(observer));
  }
  GenerationPlan plan{
      std::move(active),
      std::move(request.model),
      std::move(request.params),
      std::move(prompt_of),
      std::move(places),
      std::move(request.format),
      active_,
      std::move(observer)};
  Response response;
  add_header(response, "X-Request-Id", request.id);
  if (streamed) {
    response.content_type = "text/event-stream; charset=utf-8";
    add_header(response, "Cache-Control", "no-cache");
    add_header(response, "X-Accel-Buffering", "no");
    response.stream = stream_of(std::move(plan));
  } else {
    response.pending = whole_of(std::move(plan));
  }
  return response;
}

std::string App::metrics_text() {
  Metrics::Gauges gauges;
  gauges.resident_bytes = current_rss();
  std::function<int()> connections;
  {
    const std::scoped_lock lock(mutex_);
    connections = connections_;
  }
  gauges.connections = connections ? connections() : 0;
  if (const auto model = loaded()) {
    gauges.model = model->id;
    gauges.engine = model->engine->stats();
    gauges.kv_tokens_at_most =
        static_cast<int64_t>(model->parallel) * model->engine->context_length();
    gauges.model_bytes = model->engine->info().weight_bytes;
  }
  return metrics_.text(gauges) + (gateway_ != nullptr ? gateway_->metrics_text() : "");
}

}  // namespace quince::server
