#include "chat/tool_text.h"

#include <map>
#include <string>
#include <utility>

namespace quince {

namespace json = boost::json;

namespace {

std::string_view role_of(const json::value& message) {
  return message.at("role").as_string();
}

std::string content_of(const json::object& message) {
  const json::value* content = message.if_contains("content");
  return content != nullptr && content->is_string() ? std::string(content->get_string()) : "";
}

const json::array* calls_of(const json::object& message) {
  const json::value* calls = message.if_contains("tool_calls");
  return calls != nullptr && calls->is_array() && !calls->get_array().empty() ? &calls->get_array()
                                                                              : nullptr;
}

// Arguments come as an object, or as a text that is one.
json::value arguments_of(const json::object& function) {
  const json::value* given = function.if_contains("arguments");
  if (given == nullptr || given->is_null()) {
    return json::object();
  }
  if (given->is_string()) {
    json::parse_options options;
    options.max_depth = 64;  // as deep as requests may be
    boost::system::error_code error;
    json::value parsed = json::parse(given->get_string(), error, {}, options);
    if (!error && parsed.is_object()) {
      return parsed;
    }
  }
  return *given;
}

std::string call_text(const json::value& call) {
  const json::object& function = call.at("function").as_object();
  return "<tool_call>\n{\"name\": " + json::serialize(function.at("name")) +
         ", \"arguments\": " + json::serialize(arguments_of(function)) + "}\n</tool_call>";
}

void add_line(json::object& message, const std::string& text, std::string_view between) {
  const std::string before = content_of(message);
  message["content"] = before.empty() ? text : before + std::string(between) + text;
}

// Results follow each other in one message of the user's, together with what the user says then:
// many templates want user and assistant in turn.
void tell_of_calls(json::array& messages) {
  json::array told;
  bool after_results = false;
  for (json::value& value : messages) {
    json::object& message = value.as_object();
    const std::string_view role = role_of(value);
    if (role == "tool") {
      const std::string result = "<tool_response>\n" + content_of(message) + "\n</tool_response>";
      if (after_results) {
        add_line(told.back().as_object(), result, "\n");
      } else {
        told.push_back(json::object{{"role", "user"}, {"content", result}});
      }
      after_results = true;
      continue;
    }
    if (role == "user" && after_results) {
      add_line(told.back().as_object(), content_of(message), "\n\n");
      after_results = false;
      continue;
    }
    after_results = false;
    if (const json::array* calls = calls_of(message)) {
      for (const json::value& call : *calls) {
        add_line(message, call_text(call), "\n");
      }
      message.erase("tool_calls");
    }
    told.push_back(std::move(value));
  }
  messages = std::move(told);
}

std::string description(const json::array& tools) {
  std::string text = "You can call these functions:\n<tools>\n";
  for (const json::value& tool : tools) {
    text += json::serialize(tool.at("function")) + "\n";
  }
  return text +
         "</tools>\n"
         "To call one, write its name and its arguments as JSON, between these two tags:\n"
         "<tool_call>\n"
         "{\"name\": \"FUNCTION\", \"arguments\": {\"ARGUMENT\": \"VALUE\"}}\n"
         "</tool_call>\n"
         "You are then told what it returned, between <tool_response> and </tool_response>. "
         "Where no function helps, answer in plain text.";
}

// Behind what the system says already; with the user's first message where the system has no say.
void tell_of(const json::array& tools, bool has_system, json::array& messages) {
  const std::string text = description(tools);
  for (json::value& message : messages) {
    if (has_system && role_of(message) == "system") {
      return add_line(message.as_object(), text, "\n\n");
    }
    if (!has_system && role_of(message) == "user") {
      message.at("content") = text + "\n\n" + content_of(message.as_object());
      return;
    }
  }
  messages.insert(
      messages.begin(), json::object{{"role", has_system ? "system" : "user"}, {"content", text}});
}

// Calls are counted through the whole conversation; results have the ids of their calls.
json::array numbered_calls(json::array messages) {
  std::map<std::string, std::string> ids;
  const auto id_of = [](const json::object& object, const char* name) {
    const json::value* id = object.if_contains(name);
    return id != nullptr && id->is_string() ? std::string(id->get_string()) : "";
  };
  size_t count = 0;
  for (json::value& value : messages) {
    json::object& message = value.as_object();
    if (calls_of(message) != nullptr) {
      for (json::value& call : message.at("tool_calls").as_array()) {
        const std::string name(call.at("function").at("name").as_string());
        const std::string id = "functions." + name + ":" + std::to_string(count++);
        ids[id_of(call.as_object(), "id")] = id;
        call.as_object()["id"] = id;
      }
    }
    const auto known = ids.find(id_of(message, "tool_call_id"));
    if (role_of(value) == "tool" && known != ids.end()) {
      message["tool_call_id"] = known->second;
    }
  }
  return messages;
}

bool has_calls(const json::array& messages) {
  for (const json::value& message : messages) {
    if (role_of(message) == "tool" || calls_of(message.as_object()) != nullptr) {
      return true;
    }
  }
  return false;
}

}  // namespace

const ToolFormat& tool_format(const TextSide& text) {
  const ToolFormat& own = tool_format(text.template_text);
  const bool knows = own.whole || !text.chat_template || text.chat_template->skills().tools;
  return knows ? own : told_format();
}

std::optional<json::array> told_messages(
    const TextSide& text, const json::array& messages, json::array& tools) {
  const bool calls = has_calls(messages);
  if (tools.empty() && !calls) {
    return std::nullopt;
  }
  if (calls && tool_format(text).numbers_calls) {
    return numbered_calls(messages);
  }
  const TemplateSkills& skills = text.chat_template->skills();
  if (skills.tools || (tools.empty() && skills.calls)) {
    return std::nullopt;
  }
  json::array told = messages;
  if (calls) {
    tell_of_calls(told);
  }
  if (!tools.empty()) {
    tell_of(tools, skills.system, told);
    tools.clear();
  }
  return told;
}

}  // namespace quince
