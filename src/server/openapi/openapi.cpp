#include "server/openapi/openapi.h"

#include <cctype>
#include <string>

#include "base/json_text.h"
#include "engine/sampling_params.h"
#include "server/embedded.h"
#include "server/openai/params.h"
#include "server/routes.h"

namespace quince::server {

namespace json = boost::json;

namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

// POST /v1/models/{id} -> post_v1_models_id: every operation has a name of its own.
std::string operation_id(std::string_view method, std::string_view path) {
  std::string out = lower(method);
  for (const char c : path) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      out += c;
    } else if (!out.ends_with('_')) {
      out += '_';
    }
  }
  while (out.ends_with('_')) {
    out.pop_back();
  }
  return out;
}

// The operation of another path that has the same handler.
const json::value* operation_of(
    const json::object& paths, Response (*handle)(const RouteCall& call)) {
  for (const Route& route : routes()) {
    const json::value* path = paths.if_contains(route.path);
    if (route.handle == handle && path != nullptr) {
      if (const json::value* found = path->get_object().if_contains(lower(route.method))) {
        return found;
      }
    }
  }
  return nullptr;
}

void add_aliases(json::object& paths) {
  const json::object documented = paths;
  for (const Route& route : routes()) {
    json::value& path = paths[route.path];
    if (path.is_null()) {
      path = json::object();
    }
    json::value& operation = path.get_object()[lower(route.method)];
    const json::value* same = operation_of(documented, route.handle);
    if (operation.is_null() && same != nullptr) {
      operation = *same;
    }
    if (operation.is_object()) {
      operation.get_object()["operationId"] = operation_id(route.method, route.path);
    }
  }
}

json::object number_schema(const NumberParam& row) {
  const bool whole = row.whole();
  json::object schema{
      {"type", json::array{whole ? "integer" : "number", "null"}}, {"description", row.range}};
  const auto bound = [&](const char* name, double value) {
    if (whole) {
      schema[name] = static_cast<int64_t>(value);
    } else if (value > -1e30 && value < 1e30) {
      schema[name] = value;
    }
  };
  bound("minimum", row.low);
  bound("maximum", row.high);
  return schema;
}

void add_numbers(json::object& properties) {
  for (const NumberParam& row : number_params()) {
    if (!properties.contains(row.name) && row.name != "top_logprobs") {  // the routes differ in it
      properties[row.name] = number_schema(row);
    }
  }
  for (const auto& [alias, name] : number_aliases()) {
    properties[alias] = number_schema(*find_number_param(name));
  }
}

}  // namespace

json::object openapi_document(std::string_view version) {
  json::object document = json::parse(embedded::openapi_json).get_object();
  document["info"].get_object()["version"] = version;
  add_aliases(document["paths"].get_object());
  add_numbers(document["components"].at("schemas").at("Generation").at("properties").get_object());
  return document;
}

Response openapi(const RouteCall& call) {
  return {.body = compact_json(openapi_document(call.app.options().version))};
}

}  // namespace quince::server
