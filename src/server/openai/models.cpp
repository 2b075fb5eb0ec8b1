// GET /v1/models and /v1/models/{id}.
#include "base/json_text.h"
#include "server/errors.h"
#include "server/routes.h"

namespace quince::server {

namespace json = boost::json;

namespace {

json::object model_json(const ServedModel& model, const std::string& id) {
  const ModelInfo& info = model.engine->info();
  return {
      {"id", id},
      {"object", "model"},
      {"created", model.created},
      {"owned_by", "quince"},
      {"root", model.id},
      {"max_model_len", model.engine->context_length()},
      {"context_length", model.engine->context_length()},
      {"meta",
       {{"architecture", info.model_type},
        {"vocab_size", info.vocab_size},
        {"n_ctx_train", info.context_length},
        {"n_embd", info.hidden_size},
        {"n_params", info.parameters},
        {"size", info.weight_bytes}}}};
}

json::object elsewhere_json(const App& app, const std::string& id) {
  return {{"id", id}, {"object", "model"}, {"created", app.started()}, {"owned_by", "upstream"}};
}

}  // namespace

Response list_models(const RouteCall& call) {
  json::array data;
  if (const auto model = call.app.loaded()) {
    data.push_back(model_json(*model, model->id));
    for (const std::string& alias : model->aliases) {
      if (alias != "*") {
        data.push_back(model_json(*model, alias));
      }
    }
  }
  for (const std::string& id : call.app.models_elsewhere(call.request)) {
    data.push_back(elsewhere_json(call.app, id));
  }
  return {.body = compact_json(json::object{{"object", "list"}, {"data", std::move(data)}})};
}

Response show_model(const RouteCall& call) {
  for (const std::string& id : call.app.models_elsewhere(call.request)) {
    if (id == call.argument) {
      return {.body = compact_json(elsewhere_json(call.app, id))};
    }
  }
  const auto model = call.app.model(call.argument);
  return {.body = compact_json(model_json(*model, call.argument))};
}

}  // namespace quince::server
