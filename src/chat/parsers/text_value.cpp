#include "chat/parsers/text_value.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "chat/parsers/grammar.h"

namespace quince {

namespace json = boost::json;

namespace {

constexpr std::string_view kDate =
    "[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|"
    "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))";
constexpr std::string_view kTime =
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?"
    "(?:[zZ]|[+\\-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
constexpr std::string_view kDurationTime =
    "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)";
constexpr std::string_view kDurationDate =
    "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)";
constexpr std::string_view kLabel = "[a-zA-Z0-9](?:[a-zA-Z0-9\\-]{0,61}[a-zA-Z0-9])?";
constexpr std::string_view kByte = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
constexpr std::string_view kMailbox = "[a-zA-Z0-9!#$%&'*+\\-/=?\\^_`{|}~]+";
constexpr std::string_view kSegment = "(?:[a-zA-Z0-9\\-._~!$&'()*+,;=:@]|%[0-9a-fA-F]{2})*";

// The formats that JSON schemas may name here (bridge/src/grammar/schema.rs), as expressions. Each
// text that fits one is of the format; of some formats rare texts are never written.
std::string format_expression(std::string_view name) {
  const std::string host = fmt::format("{0}(?:\\.{0})*", kLabel);
  if (name == "date") {
    return std::string(kDate);
  }
  if (name == "time") {
    return std::string(kTime);
  }
  if (name == "date-time") {
    return fmt::format("{}[tT]{}", kDate, kTime);
  }
  if (name == "duration") {
    return fmt::format("P(?:[0-9]+W|{0}(?:{1})?|{1})", kDurationDate, kDurationTime);
  }
  if (name == "email") {
    return fmt::format("{0}(?:\\.{0})*@{1}", kMailbox, host);
  }
  if (name == "hostname") {
    return host;
  }
  if (name == "ipv4") {
    return fmt::format("(?:{0}\\.){{3}}{0}", kByte);
  }
  if (name == "ipv6") {
    std::string out = "(?:H:){7}H|(?:H:){1,7}:|:(?::H){1,7}|::";
    for (int before = 1; before <= 6; ++before) {
      out += fmt::format("|(?:H:){{{}}}(?::H){{1,{}}}", before, 7 - before);
    }
    for (size_t at = 0; (at = out.find('H', at)) != std::string::npos;) {
      out.replace(at, 1, "[0-9a-fA-F]{1,4}");
    }
    return out;
  }
  if (name == "uuid") {
    return "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}";
  }
  if (name == "uri") {
    return fmt::format(
        "[a-zA-Z][a-zA-Z0-9+\\-.]*://{0}(?::[0-9]+)?(?:/{1})*(?:\\?(?:{1}[/?]?)*)?(?:#{1})?",
        host,
        kSegment);
  }
  return "";
}

// As a terminal has it between slashes. Slashes end it; \d and \w are those of JSON schemas,
// ASCII's.
std::string quoted(std::string_view expression) {
  std::string out = "/";
  bool in_class = false;
  for (size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (c == '\\' && i + 1 < expression.size()) {
      const char next = expression[++i];
      const std::string_view set = next == 'd' || next == 'D'   ? "0-9"
                                   : next == 'w' || next == 'W' ? "0-9A-Za-z_"
                                                                : "";
      if (set.empty()) {
        out += {c, next};
      } else if (next == 'd' || next == 'w') {
        out += in_class ? std::string(set) : fmt::format("[{}]", set);
      } else {
        out += fmt::format("[^{}]", set);
      }
      continue;
    }
    in_class = c == '[' || (in_class && c != ']');
    out += c == '/' ? "\\/" : c == '\n' ? "\\n" : std::string(1, c);
  }
  return out + "/";
}

// The alternatives of an expression: what stands between those | that are in no group and no class.
std::vector<std::string_view> alternatives(std::string_view expression) {
  std::vector<std::string_view> out;
  size_t begin = 0;
  int groups = 0;
  bool in_class = false;
  for (size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (c == '\\') {
      ++i;
    } else if (in_class) {
      in_class = c != ']';
    } else if (c == '|' && groups == 0) {
      out.push_back(expression.substr(begin, i - begin));
      begin = i + 1;
    } else {
      in_class = c == '[';
      groups += c == '(' ? 1 : c == ')' ? -1 : 0;
    }
  }
  out.push_back(expression.substr(begin));
  return out;
}

// An expression that is looked for in a text, as one that the whole text fits.
std::string whole_text(std::string_view pattern) {
  std::string out;
  for (std::string_view part : alternatives(pattern)) {
    const bool begins = part.starts_with('^');
    part.remove_prefix(begins ? 1 : 0);
    bool ends = part.ends_with('$');
    for (size_t i = part.size(); i > 1 && part[i - 2] == '\\'; --i) {
      ends = !ends && part.ends_with('$');  // escaped, unless the escape is
    }
    part.remove_suffix(ends ? 1 : 0);
    out += fmt::format(
        "{}{}(?:{}){}",
        out.empty() ? "" : "|",
        begins ? "" : "(?s:.*)",
        part,
        ends ? "" : "(?s:.*)");
  }
  return out;
}

std::optional<std::string> count_of(const json::object& schema, std::string_view name) {
  const json::value* value = schema.if_contains(name);
  if (value == nullptr || !value->is_number()) {
    return std::nullopt;
  }
  return fmt::format("{:.0f}", std::max(0.0, std::ceil(value->to_number<double>())));
}

// Nothing: all texts.
std::string choices_of(const json::object& schema) {
  std::vector<std::string> choices;
  const json::value* list = schema.if_contains("enum");
  for (const json::value& choice :
       list != nullptr && list->is_array() ? list->get_array() : json::array()) {
    if (choice.is_string()) {
      choices.push_back(lark_text(choice.get_string()));
    }
  }
  return fmt::format("{}", fmt::join(choices, " | "));
}

std::string_view text_of(const json::object& schema, std::string_view name) {
  const json::value* value = schema.if_contains(name);
  return value != nullptr && value->is_string() ? std::string_view(value->get_string()) : "";
}

}  // namespace

std::optional<std::string> text_body(const json::object& schema) {
  std::vector<std::string> parts;
  const auto least = count_of(schema, "minLength");
  const auto most = count_of(schema, "maxLength");
  if (least || most) {
    parts.push_back(fmt::format("/(?s:.{{{},{}}})/", least.value_or("0"), most.value_or("")));
  }
  if (const std::string_view pattern = text_of(schema, "pattern"); !pattern.empty()) {
    parts.push_back(quoted(whole_text(pattern)));
  }
  if (const std::string format = format_expression(text_of(schema, "format")); !format.empty()) {
    parts.push_back(quoted(format));
  }
  if (const std::string choices = choices_of(schema); !choices.empty()) {
    parts.push_back("(" + choices + ")");
  }
  if (const json::value* only = schema.if_contains("const"); only != nullptr && only->is_string()) {
    parts.push_back(lark_text(only->get_string()));
  }
  if (parts.empty()) {
    return std::nullopt;
  }
  return fmt::format("{}", fmt::join(parts, " & "));
}

std::string terminal_name(std::string rule) {
  std::transform(rule.begin(), rule.end(), rule.begin(), [](unsigned char c) {
    return static_cast<char>(std::toupper(c));
  });
  return rule;
}

}  // namespace quince
