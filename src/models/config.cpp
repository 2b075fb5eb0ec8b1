#include "models/config.h"

#include <cmath>

#include "base/error.h"

namespace quince {

namespace json = boost::json;

Config::Config(const json::object& object, std::string source)
    : object_(object), source_("config.json of " + std::move(source)) {}

const json::value* Config::find(std::string_view key) const {
  const json::value* value = object_.if_contains(key);
  return value && !value->is_null() ? value : nullptr;
}

void Config::refuse(std::string_view key, std::string_view want) const {
  const json::value* value = object_.if_contains(key);
  if (!value) {
    throw UserError("{}: \"{}\" is missing, want {}", source_, key, want);
  }
  std::string text = json::serialize(*value);
  if (text.size() > 100) {
    text = text.substr(0, 100) + "...";
  }
  throw UserError("{}: \"{}\" is {}, want {}", source_, key, text, want);
}

std::optional<int> Config::maybe_count(std::string_view key, int most) const {
  const json::value* value = find(key);
  if (!value) {
    return std::nullopt;
  }
  int64_t number = 0;
  if (value->is_int64()) {
    number = value->get_int64();
  } else if (value->is_double() && std::nearbyint(value->get_double()) == value->get_double()) {
    number = std::abs(value->get_double()) <= most ? static_cast<int64_t>(value->get_double()) : -1;
  }
  if (number < 1 || number > most) {
    refuse(key, fmt::format("an integer from 1 to {}", most));
  }
  return static_cast<int>(number);
}

int Config::count(std::string_view key, int most) const {
  const std::optional<int> value = maybe_count(key, most);
  if (!value) {
    refuse(key, fmt::format("an integer from 1 to {}", most));
  }
  return *value;
}

int Config::count(std::string_view key, int most, int otherwise) const {
  return maybe_count(key, most).value_or(otherwise);
}

int Config::whole(std::string_view key, int most, int otherwise) const {
  const json::value* value = find(key);
  if (value && value->is_int64() && value->get_int64() == 0) {
    return 0;
  }
  return count(key, most, otherwise);
}

std::optional<double> Config::maybe_positive(std::string_view key) const {
  const json::value* value = find(key);
  if (!value) {
    return std::nullopt;
  }
  if (!value->is_number() || !std::isfinite(value->to_number<double>()) ||
      value->to_number<double>() <= 0.0) {
    refuse(key, "a number above 0");
  }
  return value->to_number<double>();
}

double Config::positive(std::string_view key, double otherwise) const {
  return maybe_positive(key).value_or(otherwise);
}

std::optional<bool> Config::maybe_flag(std::string_view key) const {
  const json::value* value = find(key);
  if (!value) {
    return std::nullopt;
  }
  if (!value->is_bool()) {
    refuse(key, "true or false");
  }
  return value->get_bool();
}

bool Config::flag(std::string_view key, bool otherwise) const {
  return maybe_flag(key).value_or(otherwise);
}

std::string Config::text(std::string_view key, std::string_view otherwise) const {
  const json::value* value = find(key);
  if (!value) {
    return std::string(otherwise);
  }
  if (!value->is_string()) {
    refuse(key, "a string");
  }
  return std::string(value->get_string());
}

const json::object* Config::maybe_object(std::string_view key) const {
  const json::value* value = find(key);
  if (value && !value->is_object()) {
    refuse(key, "an object");
  }
  return value ? &value->get_object() : nullptr;
}

std::optional<std::vector<std::string>> Config::maybe_texts(std::string_view key) const {
  const json::value* value = find(key);
  if (!value) {
    return std::nullopt;
  }
  if (!value->is_array()) {
    refuse(key, "a list of strings");
  }
  std::vector<std::string> out;
  for (const json::value& item : value->get_array()) {
    if (!item.is_string()) {
      refuse(key, "a list of strings");
    }
    out.emplace_back(item.get_string());
  }
  return out;
}

bool Config::has(std::string_view key) const {
  return find(key) != nullptr;
}

}  // namespace quince
