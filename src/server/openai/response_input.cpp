#include "server/openai/response_input.h"

#include <utility>

#include "server/errors.h"
#include "server/openai/messages.h"

namespace quince::server {

namespace json = boost::json;

namespace {

json::object call_message(Fields& item) {
  const auto name = item.text("name");
  if (!name) {
    throw bad_field(item.called("name"), "{} is missing", item.called("name"));
  }
  return {
      {"id", item.text("call_id").value_or("")},
      {"type", "function"},
      {"function", {{"name", *name}, {"arguments", item.text("arguments").value_or("{}")}}}};
}

// Calls that stand one after another are one message's.
void add_call(json::array& messages, json::object call) {
  if (!messages.empty()) {
    json::object& last = messages.back().as_object();
    if (last.at("role") == "assistant") {
      if (!last.contains("tool_calls")) {
        last["tool_calls"] = json::array();
      }
      last["tool_calls"].as_array().push_back(std::move(call));
      return;
    }
  }
  messages.push_back(json::object{
      {"role", "assistant"}, {"content", ""}, {"tool_calls", json::array{std::move(call)}}});
}

void add_item(json::array& messages, const json::value& value, const std::string& path) {
  const json::object* object = value.if_object();
  if (object == nullptr) {
    throw bad_field(path, "{} is {}, want an object", path, shown(value));
  }
  Fields item(*object, path + ".");
  const std::string type = item.text("type").value_or("message");
  if (type == "message") {
    json::object message;
    for (const char* name : {"role", "content"}) {
      if (const json::value* given = item.find(name)) {
        message[name] = *given;
      }
    }
    messages.push_back(parse_message(message, path));
  } else if (type == "function_call") {
    add_call(messages, call_message(item));
  } else if (type == "function_call_output") {
    const json::value* output = item.find("output");
    messages.push_back(json::object{
        {"role", "tool"},
        {"tool_call_id", item.text("call_id").value_or("")},
        {"content", output != nullptr ? parse_content(*output, path + ".output") : ""}});
  } else if (type != "reasoning" && type != "item_reference") {
    throw bad_field(
        path + ".type",
        "{}.type is \"{}\", want message, function_call, function_call_output or reasoning",
        path,
        type);
  }
}

json::array convert_tools(const json::array& list) {
  json::array tools;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string path = fmt::format("tools[{}]", i);
    const json::object* tool = list[i].if_object();
    if (tool == nullptr) {
      throw bad_field(path, "{} is {}, want an object", path, shown(list[i]));
    }
    Fields fields(*tool, path + ".");
    if (fields.text("type").value_or("function") != "function") {
      tools.push_back(*tool);  // a service's own
      continue;
    }
    if (fields.find("function") != nullptr) {
      tools.push_back(*tool);
      continue;
    }
    json::object function;
    for (const char* name : {"name", "description", "parameters", "strict"}) {
      if (const json::value* value = fields.find(name)) {
        function[name] = *value;
      }
    }
    tools.push_back(json::object{{"type", "function"}, {"function", std::move(function)}});
  }
  return tools;
}

// {"format": {"type": "json_schema", "name", "schema"}}: flat, where chat has an object in it.
void convert_text(const json::object& text, json::object& out) {
  Fields fields(text, "text.");
  const json::object* format = fields.object("format");
  if (format == nullptr) {
    return;
  }
  Fields inner(*format, "text.format.");
  const std::string type = inner.text("type").value_or("");
  if (type != "text" && type != "json_object" && type != "json_schema") {
    throw bad_field(
        "text.format.type",
        "text.format.type is {}, want text, json_object or json_schema",
        format->contains("type") ? shown(format->at("type")) : "missing");
  }
  if (type == "json_schema" && !format->contains("json_schema") && !inner.find("schema")) {
    throw bad_field("text.format.schema", "text.format.schema is missing");
  }
  json::object response = *format;
  if (format->contains("schema") && !format->contains("json_schema")) {
    response["json_schema"] = json::object{{"schema", format->at("schema")}};
    response.erase("schema");
  }
  out["response_format"] = std::move(response);
}

}  // namespace

json::object response_to_chat(const json::object& body, const json::array& before) {
  Fields fields(body);
  json::object out = body;
  for (const char* name :
       {"input",
        "instructions",
        "max_output_tokens",
        "previous_response_id",
        "text",
        "reasoning",
        "tools",
        "truncation",
        "include",
        "background",
        "stream_options"}) {
    out.erase(name);
  }
  json::array messages;
  if (const auto instructions = fields.text("instructions")) {
    messages.push_back(json::object{{"role", "system"}, {"content", *instructions}});
  }
  for (const json::value& message : before) {
    messages.push_back(message);
  }
  const json::value* input = fields.find("input");
  if (input == nullptr) {
    throw bad_field("input", "input is missing");
  }
  if (const json::string* text = input->if_string()) {
    messages.push_back(json::object{{"role", "user"}, {"content", *text}});
  } else if (const json::array* items = input->if_array()) {
    for (size_t i = 0; i < items->size(); ++i) {
      add_item(messages, items->at(i), fmt::format("input[{}]", i));
    }
  } else {
    throw bad_field("input", "input is {}, want a text or a list of items", shown(*input));
  }
  out["messages"] = std::move(messages);
  const auto limit = fields.integer(
      "max_output_tokens", 1, std::numeric_limits<int64_t>::max(), "a positive whole number");
  if (limit) {
    out["max_tokens"] = *limit;
  }
  if (const json::object* text = fields.object("text")) {
    convert_text(*text, out);
  }
  if (const json::object* reasoning = fields.object("reasoning")) {
    Fields inner(*reasoning, "reasoning.");
    if (const auto effort = inner.text("effort")) {
      out["reasoning_effort"] = *effort;
    }
  }
  if (const json::array* tools = fields.array("tools")) {
    out["tools"] = convert_tools(*tools);
  }
  if (fields.boolean("background").value_or(false)) {
    throw bad_field("background", "background: responses are made while the client waits");
  }
  return out;
}

}  // namespace quince::server
