// The server's state, and what HTTP asks of it: finds a request's route, checks keys, gives every
// response the headers that all have, and turns exceptions into the API's errors. Any thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/active_request.h"
#include "server/generation.h"
#include "server/http.h"
#include "server/metrics.h"
#include "server/openai/response_store.h"
#include "server/served_model.h"
#include "server/slot_actions.h"
#include "server/slots.h"
#include "server/upstream/gateway_service.h"

namespace quince::server {

class RequestLog;

struct AppOptions {
  std::vector<std::string> api_keys;  // at first; empty: none is needed
  // Web pages of which origin may ask: this one, "*" any, "" none, "local" those of this machine.
  std::string cors_origin = "local";
  bool strict = false;      // unknown fields are errors
  bool slots = true;        // GET /slots tells what runs
  std::string slot_folder;  // that slots are saved in; empty: they are not
  bool metrics = true;
  bool page = true;                 // GET / is a chat
  std::shared_ptr<RequestLog> log;  // null: requests are not told of
  std::string version;
};

// The answers that a handler wants: to each prompt params.n of them.
struct GenerationRequest {
  std::string id;
  std::shared_ptr<ServedModel> model;
  GenerationParams params;
  std::vector<std::vector<Token>> prompts;
  std::unique_ptr<AnswerFormat> format;
};

class App : public HttpHandler {
 public:
  explicit App(AppOptions options);

  void set_progress(double fraction);  // of loading
  void set_model(std::shared_ptr<ServedModel> model);
  void count_connections(std::function<int()> connections);
  // Before requests come; the server ends first, then the gateway. only: no model will be loaded
  // here.
  void set_gateway(GatewayService& gateway, bool only);

  void set_api_keys(std::vector<std::string> keys);

  // For the Access-Control-Allow-Origin of a response; empty: none.
  std::string allowed_origin(const HttpRequest& request) const;
  std::optional<Response> refuse(const HttpRequest& head) override;
  bool is_quick(const HttpRequest& head) override;
  Response handle(HttpRequest request) override;
  void sending(int status) override;
  Response error(int status, const std::string& message, const HttpRequest& head) override;

  // For handlers.
  const AppOptions& options() const {
    return options_;
  }
  std::shared_ptr<ServedModel> loaded() const;  // null: loading
  double progress() const {
    return progress_;
  }
  // The model of that name; "" is the one that is there. Throws ApiError: 503 while loading, 404.
  std::shared_ptr<ServedModel> model(const std::string& name) const;
  // Throws ApiError: too long a prompt; whatever Engine::submit throws.
  Response generate(GenerationRequest request, const HttpRequest& from);
  // Says which fields meant nothing, or refuses them. To be called once all were read.
  void note_ignored(const std::vector<std::string>& names, Response& response) const;
  void refuse_unknown(const std::vector<std::string>& names) const;
  ActiveRequests& active() {
    return active_;
  }
  std::shared_ptr<Slots> slots() const;  // of the model that is loaded
  SlotActions& slot_actions() {
    return slot_actions_;
  }
  ResponseStore& responses() {
    return responses_;
  }
  const ResponseStore& responses() const {
    return responses_;
  }
  // Models that are answered elsewhere, as whoever asks may ask for them.
  std::vector<std::string> models_elsewhere(const HttpRequest& from) const;
  bool only_gateway() const {
    return only_gateway_;
  }
  void count_embedded(size_t tokens) {
    metrics_.embedded(tokens);
  }
  std::string metrics_text();
  int64_t started() const {
    return started_;
  }

 private:
  Response finished(Response response, const HttpRequest& request);
  // Who asks: whether they may, and by which of the gateway's keys, if by one.
  struct Caller {
    bool known = false;
    std::shared_ptr<const gateway::KeyConfig> key;
  };
  Caller caller(const HttpRequest& request) const;
  Response handle_here(const HttpRequest& request);

  AppOptions options_;
  GatewayService* gateway_ = nullptr;
  bool only_gateway_ = false;
  int64_t started_;
  std::atomic<double> progress_ = 0;
  mutable std::mutex mutex_;  // of what follows, up to connections_
  std::shared_ptr<const std::vector<std::string>> api_keys_;
  std::shared_ptr<ServedModel> model_;
  std::shared_ptr<Slots> slots_;
  std::function<int()> connections_;
  Metrics metrics_;
  ActiveRequests active_;
  ResponseStore responses_;
  SlotActions slot_actions_;
};

// "chatcmpl-" and 24 letters and digits that nobody can guess.
std::string new_id(std::string_view prefix);
int64_t unix_seconds();

}  // namespace quince::server
