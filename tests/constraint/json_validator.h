// Does a JSON value fit a schema? A plain reading of the standard, as a judge of what grammars let
// through; what it does not know (references by anchor or id, formats, unusual patterns) it lets
// pass: check_walks.py asks a complete validator.
#pragma once

#include <algorithm>
#include <cmath>
#include <regex>
#include <string>
#include <string_view>

#include <boost/json.hpp>

namespace quince::test {

namespace json = boost::json;

class JsonValidator {
 public:
  explicit JsonValidator(const json::value& root) : root_(root) {}

  bool fits(const json::value& value) const {
    return fits(value, root_);
  }

 private:
  static bool is_type(const json::value& v, std::string_view type) {
    if (type == "integer") {
      return v.is_int64() || v.is_uint64() ||
             (v.is_double() && v.get_double() == std::floor(v.get_double()));
    }
    return (type == "null" && v.is_null()) || (type == "boolean" && v.is_bool()) ||
           (type == "number" && v.is_number()) || (type == "string" && v.is_string()) ||
           (type == "array" && v.is_array()) || (type == "object" && v.is_object());
  }

  static size_t characters(std::string_view text) {
    return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
  }

  static bool ascii(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
  }

  static bool matches(std::string_view text, std::string_view pattern) {
    if (!ascii(text) || !ascii(pattern) || pattern.find("(?") != std::string_view::npos) {
      return true;
    }
    return std::regex_search(std::string(text), std::regex(std::string(pattern)));
  }

  static bool equal(const json::value& a, const json::value& b) {
    if (a.is_number() && b.is_number()) {
      return a.to_number<double>() == b.to_number<double>();
    }
    return a == b;
  }

  bool fits(const json::value& v, const json::value& schema) const {
    if (schema.is_bool()) {
      return schema.get_bool();
    }
    const json::object& s = schema.as_object();
    for (const auto& [key, want] : s) {
      if (!keyword(v, key, want, s)) {
        return false;
      }
    }
    return true;
  }

  bool keyword(
      const json::value& v,
      std::string_view key,
      const json::value& want,
      const json::object& s) const {
    if (key == "$ref") {
      const std::string_view reference = want.as_string();
      if (reference == "#") {
        return fits(v, root_);
      }
      boost::system::error_code error;
      const json::value* target =
          reference.starts_with("#/") ? root_.find_pointer(reference.substr(1), error) : nullptr;
      return target == nullptr || fits(v, *target);
    }
    if (key == "type") {
      const auto one = [&](const json::value& type) { return is_type(v, type.as_string()); };
      return want.is_string() ? one(want)
                              : std::any_of(want.as_array().begin(), want.as_array().end(), one);
    }
    if (key == "const") {
      return equal(v, want);
    }
    if (key == "enum") {
      return std::any_of(want.as_array().begin(), want.as_array().end(), [&](const auto& option) {
        return equal(v, option);
      });
    }
    if (key == "allOf" || key == "anyOf" || key == "oneOf") {
      const json::array& options = want.as_array();
      const auto good = std::count_if(
          options.begin(), options.end(), [&](const auto& option) { return fits(v, option); });
      return key == "allOf" ? good == std::ssize(options) : key == "anyOf" ? good > 0 : good == 1;
    }
    if (v.is_number()) {
      return number(v.to_number<double>(), key, want, s);
    }
    if (v.is_string()) {
      const std::string_view text = v.get_string();
      return !(
          (key == "minLength" && characters(text) < want.to_number<size_t>()) ||
          (key == "maxLength" && characters(text) > want.to_number<size_t>()) ||
          (key == "pattern" && !matches(text, want.as_string())));
    }
    if (v.is_array()) {
      return array(v.get_array(), key, want, s);
    }
    return !v.is_object() || object(v.get_object(), key, want, s);
  }

  static bool number(
      double x, std::string_view key, const json::value& want, const json::object& s) {
    const auto is_true = [&](const char* name) {
      const json::value* found = s.if_contains(name);
      return found != nullptr && found->is_bool() && found->get_bool();
    };
    if (!want.is_number()) {
      return true;
    }
    const double limit = want.to_number<double>();
    if (key == "multipleOf") {
      const double quotient = x / limit;
      return std::abs(quotient - std::round(quotient)) < 1e-9 * std::max(1.0, std::abs(quotient));
    }
    return !(
        (key == "minimum" && (x < limit || (x == limit && is_true("exclusiveMinimum")))) ||
        (key == "maximum" && (x > limit || (x == limit && is_true("exclusiveMaximum")))) ||
        (key == "exclusiveMinimum" && x <= limit) || (key == "exclusiveMaximum" && x >= limit));
  }

  bool array(
      const json::array& list,
      std::string_view key,
      const json::value& want,
      const json::object& s) const {
    if (key == "minItems" || key == "maxItems") {
      const auto limit = want.to_number<size_t>();
      return key == "minItems" ? list.size() >= limit : list.size() <= limit;
    }
    const bool tuple = key == "prefixItems" || (key == "items" && want.is_array());
    if (tuple) {
      const json::array& places = want.as_array();
      for (size_t i = 0; i < std::min(list.size(), places.size()); ++i) {
        if (!fits(list[i], places[i])) {
          return false;
        }
      }
      return true;
    }
    const json::value* items = s.if_contains("items");
    size_t from = list.size();
    if (key == "items") {
      const json::value* prefix = s.if_contains("prefixItems");
      from = prefix != nullptr ? prefix->as_array().size() : 0;
    } else if (key == "additionalItems" && items != nullptr && items->is_array()) {
      from = items->get_array().size();
    }
    for (size_t i = from; i < list.size(); ++i) {
      if (!fits(list[i], want)) {
        return false;
      }
    }
    return true;
  }

  bool object(
      const json::object& members,
      std::string_view key,
      const json::value& want,
      const json::object& s) const {
    if (key == "minProperties" || key == "maxProperties") {
      const auto limit = want.to_number<size_t>();
      return key == "minProperties" ? members.size() >= limit : members.size() <= limit;
    }
    if (key == "required") {
      return std::all_of(want.as_array().begin(), want.as_array().end(), [&](const auto& name) {
        return members.contains(name.as_string());
      });
    }
    const json::value* properties = s.if_contains("properties");
    const json::value* patterns = s.if_contains("patternProperties");
    for (const auto& [name, member] : members) {
      const json::value* named =
          properties != nullptr ? properties->as_object().if_contains(name) : nullptr;
      bool known = named != nullptr;
      if (key == "properties" && named != nullptr && !fits(member, *named)) {
        return false;
      }
      if (patterns != nullptr) {
        for (const auto& [pattern, child] : patterns->as_object()) {
          const bool match = std::regex_search(std::string(name), std::regex(std::string(pattern)));
          known = known || match;
          if (key == "patternProperties" && match && !fits(member, child)) {
            return false;
          }
        }
      }
      if (key == "additionalProperties" && !known && !fits(member, want)) {
        return false;
      }
    }
    return true;
  }

  const json::value& root_;
};

}  // namespace quince::test
