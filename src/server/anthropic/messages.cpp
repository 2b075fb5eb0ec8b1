#include "server/anthropic/messages.h"

#include <array>
#include <limits>
#include <utility>

#include "server/errors.h"

namespace quince::server {

namespace json = boost::json;

namespace {

// The text of a "system", of a tool's result: a text, or blocks of text.
std::string plain_text(const json::value& value, const std::string& path) {
  if (const json::string* text = value.if_string()) {
    return std::string(*text);
  }
  const json::array* blocks = value.if_array();
  if (blocks == nullptr) {
    throw bad_field(path, "{} is {}, want a text or a list of blocks", path, shown(value));
  }
  std::string text;
  for (size_t i = 0; i < blocks->size(); ++i) {
    const std::string name = fmt::format("{}[{}]", path, i);
    const json::object* block = blocks->at(i).if_object();
    if (block == nullptr) {
      throw bad_field(name, "{} is {}, want an object", name, shown(blocks->at(i)));
    }
    Fields fields(*block, name + ".");
    const std::string type = fields.text("type").value_or("");
    if (type != "text") {
      throw bad_field(
          name + ".type", "{}.type is \"{}\": only text is understood here", name, type);
    }
    text += (i == 0 ? "" : "\n") + fields.text("text").value_or("");
  }
  return text;
}

// One message with blocks: its text, the calls in it, and the results of tools, which are messages
// of their own.
class Blocks {
 public:
  Blocks(std::string role, std::string path) : role_(std::move(role)), path_(std::move(path)) {}

  void add(const json::value& value, size_t i) {
    const std::string name = fmt::format("{}.content[{}]", path_, i);
    const json::object* block = value.if_object();
    if (block == nullptr) {
      throw bad_field(name, "{} is {}, want an object", name, shown(value));
    }
    Fields fields(*block, name + ".");
    const std::string type = fields.text("type").value_or("");
    if (type == "text") {
      const auto text = fields.text("text");
      if (!text) {
        throw bad_field(name + ".text", "{}.text is missing", name);
      }
      text_ += (text_.empty() ? "" : "\n") + *text;
    } else if (type == "thinking") {
      reasoning_ += fields.text("thinking").value_or("");
    } else if (type == "tool_use") {
      const json::object* input = fields.object("input");
      calls_.push_back(json::object{
          {"id", fields.text("id").value_or("")},
          {"type", "function"},
          {"function",
           {{"name", fields.text("name").value_or("")},
            {"arguments", json::serialize(input != nullptr ? *input : json::object())}}}});
    } else if (type == "tool_result") {
      const json::value* content = fields.find("content");
      results_.push_back(json::object{
          {"role", "tool"},
          {"tool_call_id", fields.text("tool_use_id").value_or("")},
          {"content", content == nullptr ? "" : plain_text(*content, name + ".content")}});
    } else if (type != "redacted_thinking") {
      throw bad_field(
          name + ".type",
          "{}.type is \"{}\", want text, thinking, tool_use or tool_result",
          name,
          type);
    }
  }

  void give(json::array& messages) {
    for (json::value& result : results_) {
      messages.push_back(std::move(result));
    }
    if (text_.empty() && calls_.empty() && !results_.empty()) {
      return;
    }
    json::object message{{"role", role_}, {"content", text_}};
    if (!calls_.empty()) {
      message["tool_calls"] = std::move(calls_);
    }
    if (!reasoning_.empty()) {
      message["reasoning_content"] = reasoning_;
    }
    messages.push_back(std::move(message));
  }

 private:
  std::string role_;
  std::string path_;
  std::string text_;
  std::string reasoning_;
  json::array calls_;
  json::array results_;
};

json::array convert_messages(Fields& fields) {
  json::array messages;
  if (const json::value* system = fields.find("system")) {
    messages.push_back(
        json::object{{"role", "system"}, {"content", plain_text(*system, "system")}});
  }
  const json::array* list = fields.array("messages");
  if (list == nullptr || list->empty()) {
    throw bad_field(
        "messages", "messages is {}: want at least one", list == nullptr ? "missing" : "empty");
  }
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string path = fmt::format("messages[{}]", i);
    const json::object* message = list->at(i).if_object();
    if (message == nullptr) {
      throw bad_field(path, "{} is {}, want an object", path, shown(list->at(i)));
    }
    Fields inner(*message, path + ".");
    const std::string role = inner.text("role").value_or("");
    if (role != "user" && role != "assistant" && role != "system") {
      throw bad_field(path + ".role", "{}.role is \"{}\", want user or assistant", path, role);
    }
    const json::value* content = inner.find("content");
    if (content == nullptr) {
      throw bad_field(path + ".content", "{}.content is missing", path);
    }
    const json::array* blocks = content->if_array();
    if (blocks == nullptr) {
      messages.push_back(
          json::object{{"role", role}, {"content", plain_text(*content, path + ".content")}});
      continue;
    }
    Blocks converted(role, path);
    for (size_t b = 0; b < blocks->size(); ++b) {
      converted.add(blocks->at(b), b);
    }
    converted.give(messages);
  }
  return messages;
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
    const std::string type = fields.text("type").value_or("custom");
    if (type != "custom") {
      tools.push_back(json::object{{"type", "service"}});  // Anthropic's own servers have it
      continue;
    }
    json::object function{{"name", fields.text("name").value_or("")}};
    if (auto description = fields.text("description")) {
      function["description"] = *description;
    }
    if (const json::object* schema = fields.object("input_schema")) {
      function["parameters"] = *schema;
    }
    tools.push_back(json::object{{"type", "function"}, {"function", std::move(function)}});
  }
  return tools;
}

void convert_choice(const json::object& choice, json::object& out) {
  Fields fields(choice, "tool_choice.");
  const std::string type = fields.text("type").value_or("");
  if (type == "tool") {
    const auto name = fields.text("name");
    if (!name) {
      throw bad_field("tool_choice.name", "tool_choice.name is missing: want the name of a tool");
    }
    out["tool_choice"] = json::object{{"type", "function"}, {"function", {{"name", *name}}}};
  } else if (type == "auto" || type == "any" || type == "none") {
    out["tool_choice"] = type == "any" ? "required" : type.c_str();
  } else {
    throw bad_field(
        "tool_choice.type",
        "tool_choice.type is {}, want auto, any, tool or none",
        choice.contains("type") ? shown(choice.at("type")) : "missing");
  }
  if (fields.boolean("disable_parallel_tool_use").value_or(false)) {
    out["parallel_tool_calls"] = false;
  }
}

// How hard to try, in the words that templates know.
const char* effort_of(const std::string& given) {
  if (given == "xhigh" || given == "max") {
    return "high";
  }
  for (const char* word : {"low", "medium", "high"}) {
    if (given == word) {
      return word;
    }
  }
  throw bad_field(
      "output_config.effort",
      "output_config.effort is \"{}\", want low, medium, high, xhigh or max",
      given);
}

// {"type": "json_schema", "schema"}: the form that the answer is held to.
void convert_format(const json::object& format, const std::string& path, json::object& out) {
  Fields fields(format, path + ".");
  const std::string type = fields.text("type").value_or("");
  if (type != "json_schema") {
    throw bad_field(path + ".type", "{}.type is \"{}\", want json_schema", path, type);
  }
  const json::value* schema = fields.find("schema");
  if (schema == nullptr) {
    throw bad_field(path + ".schema", "{}.schema is missing", path);
  }
  out["response_format"] = json::object{{"type", type}, {"json_schema", {{"schema", *schema}}}};
}

// "output_config", and "output_format", which was its first name.
void convert_output(Fields& fields, json::object& out) {
  if (const json::object* format = fields.object("output_format")) {
    convert_format(*format, "output_format", out);
  }
  const json::object* config = fields.object("output_config");
  if (config == nullptr) {
    return;
  }
  Fields inner(*config, "output_config.");
  if (const json::object* format = inner.object("format")) {
    convert_format(*format, "output_config.format", out);
  }
  if (const auto effort = inner.text("effort")) {
    out["reasoning_effort"] = effort_of(*effort);
  }
}

}  // namespace

json::object to_openai(const json::object& body) {
  Fields fields(body);
  json::object out = body;
  for (const char* name :
       {"system",
        "stop_sequences",
        "thinking",
        "tools",
        "tool_choice",
        "anthropic_version",
        "context_management",
        "output_config",
        "output_format"}) {
    out.erase(name);
  }
  out["messages"] = convert_messages(fields);
  if (const auto stops = fields.texts("stop_sequences")) {
    out["stop"] = json::value_from(*stops);
  }
  if (const json::array* tools = fields.array("tools")) {
    out["tools"] = convert_tools(*tools);
  }
  if (const json::object* choice = fields.object("tool_choice")) {
    convert_choice(*choice, out);
  }
  convert_output(fields, out);
  if (const json::object* thinking = fields.object("thinking")) {
    Fields inner(*thinking, "thinking.");
    json::object values;
    if (const json::object* given = fields.object("chat_template_kwargs")) {
      values = *given;
    }
    values["enable_thinking"] = inner.text("type").value_or("disabled") != "disabled";
    constexpr int64_t kMost = std::numeric_limits<int>::max();
    if (const auto tokens =
            inner.integer("budget_tokens", 0, kMost, "a number of tokens, 0 or more")) {
      out["reasoning_budget"] = *tokens;
    }
    out["chat_template_kwargs"] = std::move(values);
  }
  return out;
}

}  // namespace quince::server
