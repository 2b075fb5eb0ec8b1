// What operators ask: is it alive, what is there, what runs.
#include <cmath>

#include "base/json_text.h"
#include "server/errors.h"
#include "server/openai/format.h"
#include "server/routes.h"

namespace quince::server {

namespace json = boost::json;

Response health(const RouteCall& call) {
  const auto model = call.app.loaded();
  if (model && model->engine->failure()) {
    const ErrorReport error = report(model->engine->failure());
    json::object body = error_json(error, ErrorStyle::openai);
    body["status"] = "error";
    return {.status = error.status, .body = compact_json(body)};
  }
  if (model || call.app.only_gateway()) {
    return {.body = R"({"status":"ok"})"};
  }
  const double progress = std::round(call.app.progress() * 1000) / 1000;
  return {
      .status = 503,
      .headers = {{"Retry-After", "1"}},
      .body = compact_json(json::object{
          {"status", "loading model"},
          {"progress", progress},
          {"error",
           {{"message", "the model is being loaded"},
            {"type", "overloaded_error"},
            {"param", nullptr},
            {"code", "loading"}}}})};
}

Response props(const RouteCall& call) {
  const auto model = call.app.model("");
  const ModelInfo& info = model->engine->info();
  json::object sampling;
  for (const NumberParam& row : number_params()) {
    sampling[std::string(row.name)] = number_json(row, model->sampling);
  }
  const auto token_text = [&](std::optional<Token> id) {
    return id ? model->text.tokenizer.id_to_token(*id).value_or("") : std::string();
  };
  const auto& ends = model->text.end_tokens;
  return {
      .body = compact_json(json::object{
          {"default_generation_settings",
           {{"n_ctx", model->engine->context_length()}, {"params", std::move(sampling)}}},
          {"total_slots", model->parallel},
          {"model_path", model->source},
          {"model_alias", model->id},
          {"model_type", info.model_type},
          {"chat_template", model->text.template_text},
          {"bos_token", token_text(model->text.bos)},
          {"eos_token", token_text(ends.empty() ? std::nullopt : std::optional(ends.front()))},
          {"modalities", {{"vision", false}, {"audio", false}}},
          {"build_info", "quince " + call.app.options().version},
          {"is_sleeping", false}})};
}

Response version(const RouteCall& call) {
  return {.body = compact_json(json::object{{"version", call.app.options().version}})};
}

Response metrics(const RouteCall& call) {
  if (!call.app.options().metrics) {
    throw ApiError(501, "not_supported_error", "/metrics is switched off (--no-metrics)");
  }
  return {
      .content_type = "text/plain; version=0.0.4; charset=utf-8", .body = call.app.metrics_text()};
}

Response cancel(const RouteCall& call) {
  if (!call.app.active().cancel(call.argument)) {
    throw ApiError(
        404,
        "not_found_error",
        fmt::format("nothing of id '{}' is running", call.argument),
        "id",
        "not_found");
  }
  return {.body = compact_json(json::object{{"id", call.argument}, {"cancelled", true}})};
}

}  // namespace quince::server
