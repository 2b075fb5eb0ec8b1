#include "base/json_text.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace quince {

namespace json = boost::json;

namespace {

// Shortest text that reads back as the same number, and as a real one. JSON has no infinities.
std::string number(double value) {
  if (!std::isfinite(value)) {
    return "null";
  }
  std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

struct Style {
  bool pretty;
};

void print(std::string& out, const json::value& value, Style style, int depth);

void new_line(std::string& out, Style style, int depth) {
  if (style.pretty) {
    out += '\n';
    out.append(static_cast<size_t>(depth) * 2, ' ');
  }
}

void print_object(std::string& out, const json::object& object, Style style, int depth) {
  out += '{';
  bool first = true;
  for (const auto& [key, item] : object) {
    out += first ? "" : ",";
    new_line(out, style, depth + 1);
    out += json::serialize(json::string(key)) + (style.pretty ? ": " : ":");
    print(out, item, style, depth + 1);
    first = false;
  }
  if (!first) {
    new_line(out, style, depth);
  }
  out += '}';
}

void print_array(std::string& out, const json::array& items, Style style, int depth) {
  // Numbers stand in one line, everything else one below the other.
  bool numbers = std::all_of(
      items.begin(), items.end(), [](const json::value& item) { return item.is_number(); });
  out += '[';
  for (size_t i = 0; i < items.size(); i++) {
    out += i == 0 ? "" : numbers && style.pretty ? ", " : ",";
    if (!numbers) {
      new_line(out, style, depth + 1);
    }
    print(out, items[i], style, depth + 1);
  }
  if (!numbers) {
    new_line(out, style, depth);
  }
  out += ']';
}

void print(std::string& out, const json::value& value, Style style, int depth) {
  if (const json::object* object = value.if_object()) {
    print_object(out, *object, style, depth);
  } else if (const json::array* items = value.if_array()) {
    print_array(out, *items, style, depth);
  } else if (const double* real = value.if_double()) {
    out += number(*real);
  } else {
    out += json::serialize(value);
  }
}

}  // namespace

std::string compact_json(const json::value& value) {
  std::string out;
  print(out, value, {false}, 0);
  return out;
}

std::string pretty_json(const json::value& value) {
  std::string out;
  print(out, value, {true}, 0);
  return out + "\n";
}

}  // namespace quince
