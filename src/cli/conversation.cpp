#include "cli/conversation.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "weights/json_file.h"

namespace quince::cli {

namespace json = boost::json;

namespace {

constexpr size_t kMostBytes = size_t{256} << 20;
constexpr const char* kFormat = "quince-chat";

bool is_saved_chat(const std::filesystem::path& path) {
  try {
    auto text = read_text_file_if_any(path, kMostBytes);
    if (!text || text->empty()) {
      return true;  // nothing to lose
    }
    json::object object = parse_json_object(*text, path.string());
    const json::value* format = object.if_contains("format");
    return format != nullptr && format->is_string() && format->get_string() == kFormat;
  } catch (const UserError&) {
    return false;
  }
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  std::string temporary = path.string() + ".partXXXXXX";
  int file = mkstemp(temporary.data());
  if (file < 0) {
    throw UserError("{}: cannot write: {}", path.string(), std::strerror(errno));
  }
  std::string_view rest = text;
  int error = 0;
  while (!rest.empty() && error == 0) {
    ssize_t written = write(file, rest.data(), rest.size());
    if (written < 0 && errno != EINTR) {
      error = errno;
    } else if (written > 0) {
      rest.remove_prefix(static_cast<size_t>(written));
    }
  }
  if (close(file) != 0 && error == 0) {
    error = errno;
  }
  if (error == 0 && rename(temporary.c_str(), path.c_str()) != 0) {
    error = errno;
  }
  if (error != 0) {
    unlink(temporary.c_str());
    throw UserError("{}: cannot write: {}", path.string(), std::strerror(error));
  }
}

// A string, or OpenAI's list of parts of which the texts count.
std::string content_text(const json::value& content, const std::string& where) {
  if (content.is_string()) {
    return std::string(content.get_string());
  }
  if (content.is_null()) {
    return "";
  }
  std::string text;
  const json::array* parts = content.if_array();
  if (parts == nullptr) {
    throw UserError("{}: content is {}, want a text", where, json::serialize(content));
  }
  for (const json::value& part : *parts) {
    const json::object* object = part.if_object();
    const json::value* piece = object == nullptr ? nullptr : object->if_contains("text");
    if (piece == nullptr || !piece->is_string()) {
      throw UserError("{}: a part of the content is not a text", where);
    }
    text += piece->get_string();
  }
  return text;
}

}  // namespace

json::array Conversation::to_json() const {
  json::array array;
  if (system) {
    array.push_back({{"role", "system"}, {"content", *system}});
  }
  for (const Message& message : messages) {
    array.push_back({{"role", message.role}, {"content", message.content}});
  }
  return array;
}

void save_conversation(
    const Conversation& conversation, const std::string& model, const std::filesystem::path& path) {
  if (!is_saved_chat(path)) {
    throw UserError("{}: exists and is not a saved chat; choose another name", path.string());
  }
  json::object object{
      {"format", kFormat}, {"version", 1}, {"model", model}, {"messages", conversation.to_json()}};
  write_file(path, json::serialize(object) + "\n");
}

Conversation load_conversation(const std::filesystem::path& path) {
  std::string text = read_text_file(path, kMostBytes);
  json::value root = parse_json(text, path.string());
  const json::value* list = &root;
  if (const json::object* object = root.if_object()) {
    list = object->if_contains("messages");
  }
  if (list == nullptr || !list->is_array()) {
    throw UserError("{}: not a saved chat (no list of messages)", path.string());
  }
  Conversation conversation;
  size_t number = 0;
  for (const json::value& entry : list->get_array()) {
    std::string where = fmt::format("{}: message {}", path.string(), ++number);
    const json::object* object = entry.if_object();
    const json::value* role = object == nullptr ? nullptr : object->if_contains("role");
    const json::value* content = object == nullptr ? nullptr : object->if_contains("content");
    if (role == nullptr || !role->is_string() || content == nullptr) {
      throw UserError("{}: has no role and content", where);
    }
    std::string name(role->get_string());
    std::string body = content_text(*content, where);
    if (name == "system" || name == "developer") {
      if (number != 1) {
        throw UserError("{}: a system message can only come first", where);
      }
      conversation.system = body;
      continue;
    }
    if (name != "user" && name != "assistant") {
      throw UserError("{}: role '{}', want system, user or assistant", where, name);
    }
    conversation.messages.push_back({name, body});
  }
  return conversation;
}

std::filesystem::path expand_home(const std::string& path) {
  const char* home = std::getenv("HOME");
  if (home != nullptr && (path == "~" || path.starts_with("~/"))) {
    return std::string(home) + path.substr(1);
  }
  return path;
}

}  // namespace quince::cli
