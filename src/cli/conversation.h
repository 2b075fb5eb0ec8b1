// What was said in a chat, and its file form.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <boost/json.hpp>

namespace quince::cli {

struct Message {
  std::string role;  // "user" or "assistant"; roles of loaded files are kept as they are
  std::string content;
};

struct Conversation {
  std::optional<std::string> system;
  std::vector<Message> messages;

  boost::json::array to_json() const;  // OpenAI's form, the system message first
};

// {"format": "quince-chat", "version": 1, "model": ..., "messages": [...]}. Written beside the file
// and renamed, readable by its owner only. Refuses (UserError) to replace a file that is not a
// saved chat.
void save_conversation(
    const Conversation& conversation, const std::string& model, const std::filesystem::path& path);

// Reads that form, or a bare array of {"role", "content"}. Throws UserError naming file and
// message.
Conversation load_conversation(const std::filesystem::path& path);

// "~/x" -> "/home/me/x".
std::filesystem::path expand_home(const std::string& path);

}  // namespace quince::cli
