#include "constraint/contradiction.h"

#include <array>
#include <string_view>

#include <fmt/format.h>
#include <boost/json.hpp>

namespace quince {

namespace json = boost::json;

namespace {

struct Bounds {
  std::string_view type;
  std::string_view least;
  std::string_view most;
};

constexpr std::array kBounds = {
    Bounds{"string", "minLength", "maxLength"},
    Bounds{"array", "minItems", "maxItems"},
    Bounds{"object", "minProperties", "maxProperties"},
    Bounds{"integer", "minimum", "maximum"},
    Bounds{"number", "minimum", "maximum"}};

std::optional<double> number(const json::object& schema, std::string_view key) {
  const json::value* value = schema.if_contains(key);
  return value && value->is_number() ? std::optional(value->to_number<double>()) : std::nullopt;
}

std::optional<std::string> inside(
    const json::object& schemas, std::string_view name, std::string_view shown) {
  const json::value* schema = schemas.if_contains(name);
  const std::optional<std::string> found = schema ? contradiction(*schema) : std::nullopt;
  return found ? std::optional(fmt::format("{}{}", shown, *found)) : std::nullopt;
}

}  // namespace

std::optional<std::string> contradiction(const json::value& schema) {
  const json::object* object = schema.if_object();
  const json::value* type = object ? object->if_contains("type") : nullptr;
  if (!type || !type->is_string()) {
    return std::nullopt;
  }
  const std::string_view name = type->get_string();
  for (const Bounds& bounds : kBounds) {
    if (name != bounds.type) {
      continue;
    }
    const auto least = number(*object, bounds.least);
    const auto most = number(*object, bounds.most);
    if (least && most && *least > *most) {
      return fmt::format(
          "nothing fits: {} is {} and {} {}",
          bounds.least,
          json::serialize(object->at(bounds.least)),
          bounds.most,
          json::serialize(object->at(bounds.most)));
    }
  }
  if (name == "array" && number(*object, "minItems").value_or(0) >= 1) {
    return inside(*object, "items", "items: ");
  }
  const json::value* properties = object->if_contains("properties");
  const json::value* required = object->if_contains("required");
  if (name == "object" && properties && properties->is_object() && required &&
      required->is_array()) {
    for (const json::value& key : required->get_array()) {
      if (!key.is_string()) {
        continue;
      }
      if (auto found = inside(
              properties->get_object(),
              key.get_string(),
              fmt::format("{}: ", std::string_view(key.get_string())))) {
        return found;
      }
    }
  }
  return std::nullopt;
}

}  // namespace quince
