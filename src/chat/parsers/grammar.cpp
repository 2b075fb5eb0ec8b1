#include "chat/parsers/grammar.h"

#include <algorithm>

#include <fmt/format.h>

#include "chat/parsers/held_text.h"
#include "chat/parsers/text_value.h"

namespace quince {

namespace json = boost::json;

std::string lark_text(std::string_view text) {
  return json::serialize(json::string_view(text));
}

std::string lark_mark(const Tokenizer& tokenizer, std::string_view mark) {
  const auto id = tokenizer.token_to_id(mark);
  return id && tokenizer.is_special(*id) ? fmt::format("<[{}]>", *id) : lark_text(mark);
}

json::object parameters_of(const json::value& tool) {
  const json::value* given = tool.at("function").as_object().if_contains("parameters");
  json::object parameters =
      given != nullptr && given->is_object() ? given->get_object() : json::object();
  parameters["type"] = "object";
  return parameters;
}

std::string arguments_schema(const json::value& tool) {
  return json::serialize(parameters_of(tool));
}

std::string escaped(std::string_view text) {
  const std::string quoted = json::serialize(json::string_view(text));
  return quoted.substr(1, quoted.size() - 2);
}

std::string member_schema(const json::object& whole, const json::value& member) {
  const json::object* object = member.if_object();
  if (object == nullptr) {
    return json::serialize(member);
  }
  json::object own = *object;
  for (const char* definitions : {"$defs", "definitions"}) {
    if (const json::value* list = whole.if_contains(definitions)) {
      own.emplace(definitions, *list);
    }
  }
  return json::serialize(own);
}

bool is_required(const json::object& schema, std::string_view key) {
  const json::value* list = schema.if_contains("required");
  return list != nullptr && list->is_array() &&
         std::any_of(list->get_array().begin(), list->get_array().end(), [&](const auto& one) {
           return one.is_string() && one.get_string() == key;
         });
}

namespace {

std::string argument_rule(
    const std::string& rule,
    std::string_view key,
    const json::object& whole,
    const json::value& member,
    const ArgumentForm& form,
    std::string& rules) {
  const json::object* schema = member.if_object();
  const json::value* type = schema != nullptr ? schema->if_contains("type") : nullptr;
  const bool is_text = type != nullptr && *type == "string";
  const std::string end = lark_text(form.end_text);
  std::string out = form.begin(key, is_text) + " ";
  if (!is_text) {
    rules += fmt::format("{}: %json {}\n", rule, member_schema(whole, member));
    out += rule + " " + end;
  } else if (const auto body = text_body(*schema)) {  // one terminal with its end, which is not in
                                                      // it
    const std::string terminal = terminal_name(rule);
    rules += fmt::format(
        "{0}: (/(?s:.*)/ & ~(/(?s:.*)/ {1} /(?s:.*)/) & {2}) {3}\n",
        terminal,
        lark_text(trimmed(form.end_text)),
        *body,
        end);
    out += terminal;
  } else {  // ends with its end
    rules += fmt::format("{}[suffix={}]: /(?s:.*)/\n", rule, end);
    out += rule;
  }
  return form.behind.empty() ? out : out + " " + form.behind;
}

}  // namespace

std::string argument_rules(
    const std::string& prefix,
    const json::value& tool,
    const ArgumentForm& form,
    std::string& rules) {
  const json::value* parameters = tool.at("function").as_object().if_contains("parameters");
  const json::object* schema = parameters != nullptr ? parameters->if_object() : nullptr;
  const json::value* members = schema != nullptr ? schema->if_contains("properties") : nullptr;
  std::string out;
  if (members == nullptr || !members->is_object()) {
    return out;
  }
  size_t n = 0;
  for (const auto& [key, member] : members->get_object()) {
    const std::string argument =
        argument_rule(fmt::format("{}_{}", prefix, n++), key, *schema, member, form, rules);
    out += is_required(*schema, key) ? " " + argument : " (" + argument + ")?";
  }
  return out;
}

bool is_text_argument(const json::array& tools, std::string_view name, std::string_view key) {
  for (const json::value& tool : tools) {
    const json::object& function = tool.at("function").as_object();
    if (function.at("name") != json::string_view(name)) {
      continue;
    }
    const auto inside = [](const json::object* object, std::string_view member) {
      const json::value* value = object != nullptr ? object->if_contains(member) : nullptr;
      return value != nullptr ? value->if_object() : nullptr;
    };
    const json::object* argument =
        inside(inside(inside(&function, "parameters"), "properties"), key);
    const json::value* type = argument != nullptr ? argument->if_contains("type") : nullptr;
    return type != nullptr && *type == "string";
  }
  return false;
}

}  // namespace quince
