// The interactive chat without terminal and model: reads lines, keeps the conversation, obeys the
// commands. Everything outside comes in through LineSource, Responder and two print functions, so
// that it can be tested as plain logic.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "cli/conversation.h"
#include "cli/generate.h"
#include "cli/line_source.h"
#include "cli/settings.h"

namespace quince::cli {

struct Reply {
  std::string text;
  FinishReason reason = FinishReason::none;
  bool interrupted = false;  // by the user; text is what had come by then
  GenerationStats stats;
};

class Responder {
 public:
  virtual ~Responder() = default;
  // Streams the answer to the conversation. Throws UserError for what the user can mend (context
  // full, a template that refuses); the chat goes on.
  virtual Reply reply(
      const Conversation& conversation,
      const GenerationSettings& settings,
      const ShowText& show) = 0;
};

struct ChatCommand {
  std::string name;  // "save", without the slash
  std::string rest;  // all behind the name, trimmed
};

// "/save a.json" -> {save, a.json}. Nothing for a line that is a message: one that does not begin
// with a slash, or begins with two (the first one is then only an escape) or with "/ ".
std::optional<ChatCommand> parse_chat_command(std::string_view line);
std::vector<std::string> chat_command_names();

class Chat {
 public:
  struct Options {
    std::string model;  // written into saved chats
    std::optional<std::string> system;
    bool verbose = false;    // a speed line after every answer
    bool keep_turns = true;  // false: every line stands for itself (no chat template)
  };
  using Print = std::function<void(std::string_view)>;

  // answer: the model's text. info: everything else, whole lines.
  Chat(
      Options options,
      GenerationSettings settings,
      Responder& responder,
      LineSource& lines,
      Print answer,
      Print info);

  // Until the user leaves.
  void run();

  const Conversation& conversation() const {
    return conversation_;
  }
  const GenerationSettings& settings() const {
    return settings_;
  }

 private:
  bool obey(const ChatCommand& command);  // false: leave
  void say(const std::string& text);
  void set(const std::string& rest);
  void show_settings();
  void show_stats();
  void show_help();
  std::optional<std::string> read_message(bool& leave);

  Options options_;
  GenerationSettings settings_;
  Responder& responder_;
  LineSource& lines_;
  Print answer_;
  Print info_;
  Conversation conversation_;
  std::optional<GenerationStats> last_;
  GenerationStats total_;
  int answers_ = 0;
};

}  // namespace quince::cli
