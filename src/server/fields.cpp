#include "server/fields.h"

#include <charconv>
#include <cmath>

#include "server/errors.h"
#include "tokenizer/utf8.h"

namespace quince::server {

namespace json = boost::json;

namespace {

constexpr size_t kMostShown = 60;

ApiError wrong(const std::string& name, const json::value& value, std::string_view wanted) {
  return bad_field(name, "{} is {}, want {}", name, shown(value), wanted);
}

// The number that \uXXXX at this place stands for; -1: there is none.
int escaped_unit(std::string_view text, size_t at) {
  int unit = -1;
  if (text.size() >= at + 6 && text[at] == '\\' && text[at + 1] == 'u') {
    const char* begin = text.data() + at + 2;
    const auto [end, error] = std::from_chars(begin, begin + 4, unit, 16);
    return error == std::errc() && end == begin + 4 ? unit : -1;
  }
  return unit;
}

// Whether JSON has a \uD800 to \uDFFF without its other half.
bool has_half_character(std::string_view text) {
  for (size_t at = 0; (at = text.find('\\', at)) != std::string_view::npos;) {
    const int unit = escaped_unit(text, at);
    const bool first = unit >= 0xd800 && unit < 0xdc00;
    const int next = first ? escaped_unit(text, at + 6) : -1;
    if ((unit >= 0xdc00 && unit < 0xe000) || (first && !(next >= 0xdc00 && next < 0xe000))) {
      return true;
    }
    at += first ? 12 : 2;
  }
  return false;
}

}  // namespace

std::string shown(const json::value& value) {
  if (value.is_object() || value.is_array()) {
    return value.is_object() ? "an object" : "a list";
  }
  std::string text = json::serialize(value);
  if (text.size() > kMostShown) {
    size_t end = kMostShown;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) {
      --end;
    }
    text = text.substr(0, end) + "...";
  }
  return text;
}

ApiError not_json(std::string_view body, const boost::system::error_code& error) {
  if (const size_t good = valid_utf8_bytes(body); good < body.size()) {
    return bad_field(
        "",
        "the request's body is not UTF-8: byte {} (0x{:02x}) is part of no character; send JSON in "
        "UTF-8",
        good,
        static_cast<unsigned char>(body[good]));
  }
  if (has_half_character(body)) {
    return bad_field(
        "",
        "the request's body has half a character in a text (\\uD800 to \\uDFFF come in pairs): "
        "send "
        "both halves, or the character as UTF-8");
  }
  return bad_field("", "the request's body is not JSON: {}", error.message());
}

json::object parse_body(std::string_view body) {
  const std::string_view sent = body;
  if (body.starts_with("\xef\xbb\xbf")) {
    body.remove_prefix(3);
  }
  json::parse_options options;
  options.max_depth = kMostDepth;
  boost::system::error_code error;
  json::value value = json::parse(body, error, {}, options);
  if (error == json::error::too_deep) {
    throw bad_field("", "the request's JSON is nested more than {} deep", kMostDepth);
  }
  if (error) {
    throw not_json(sent, error);
  }
  if (!value.is_object()) {
    throw bad_field("", "the request's body is {}, want a JSON object", shown(value));
  }
  return std::move(value.get_object());
}

const json::value* Fields::find(std::string_view name) {
  known_.emplace(name);
  const json::value* value = object_.if_contains(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

void Fields::know(std::string_view name) {
  known_.emplace(name);
}

std::optional<double> Fields::number(std::string_view name, std::string_view wanted) {
  const json::value* value = find(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (!value->is_number() || !std::isfinite(value->to_number<double>())) {
    throw wrong(called(name), *value, wanted);
  }
  return value->to_number<double>();
}

std::optional<int64_t> Fields::integer(
    std::string_view name, int64_t low, int64_t high, std::string_view wanted) {
  const auto number = this->number(name, wanted);
  if (!number) {
    return std::nullopt;
  }
  const json::value& value = object_.at(name);
  // A number that is too large for the type is larger than any bound.
  const bool exact = value.is_int64() || (value.is_double() && std::floor(*number) == *number &&
                                          std::abs(*number) < 9e15);
  if (!exact && !value.is_uint64()) {
    throw wrong(called(name), value, wanted);
  }
  const int64_t whole = value.is_int64()    ? value.get_int64()
                        : value.is_double() ? static_cast<int64_t>(*number)
                                            : std::numeric_limits<int64_t>::max();
  if (whole < low || whole > high) {
    throw wrong(called(name), value, wanted);
  }
  return whole;
}

std::optional<bool> Fields::boolean(std::string_view name) {
  const json::value* value = find(name);
  if (value != nullptr && !value->is_bool()) {
    throw wrong(called(name), *value, "true or false");
  }
  return value == nullptr ? std::nullopt : std::optional(value->get_bool());
}

std::optional<std::string> Fields::text(std::string_view name) {
  const json::value* value = find(name);
  if (value != nullptr && !value->is_string()) {
    throw wrong(called(name), *value, "a text");
  }
  return value == nullptr
             ? std::nullopt
             : std::optional(std::string(value->get_string().c_str(), value->get_string().size()));
}

std::optional<std::vector<std::string>> Fields::texts(std::string_view name) {
  const json::value* value = find(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  std::vector<std::string> out;
  const auto add = [&](const json::value& item) {
    if (!item.is_string()) {
      throw wrong(called(name), item, "a text, or a list of texts");
    }
    out.emplace_back(item.get_string());
  };
  if (value->is_array()) {
    for (const json::value& item : value->get_array()) {
      add(item);
    }
  } else {
    add(*value);
  }
  return out;
}

const json::object* Fields::object(std::string_view name) {
  const json::value* value = find(name);
  if (value != nullptr && !value->is_object()) {
    throw wrong(called(name), *value, "an object");
  }
  return value == nullptr ? nullptr : &value->get_object();
}

const json::array* Fields::array(std::string_view name) {
  const json::value* value = find(name);
  if (value != nullptr && !value->is_array()) {
    throw wrong(called(name), *value, "a list");
  }
  return value == nullptr ? nullptr : &value->get_array();
}

std::vector<std::string> Fields::unknown() const {
  std::vector<std::string> names;
  for (const auto& field : object_) {
    if (!known_.contains(std::string_view(field.key()))) {
      names.push_back(called(std::string_view(field.key())));
    }
  }
  return names;
}

}  // namespace quince::server
