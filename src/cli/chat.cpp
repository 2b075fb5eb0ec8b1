#include "cli/chat.h"

#include <algorithm>

#include "base/closest.h"
#include "base/error.h"
#include "cli/args.h"

namespace quince::cli {

namespace {

constexpr const char* kPrompt = ">>> ";
constexpr const char* kMore = "... ";
constexpr std::string_view kFence = "\"\"\"";  // begins and ends a message of several lines

struct CommandHelp {
  std::string_view name;
  std::string_view arguments;
  std::string_view help;
};
constexpr CommandHelp kCommands[] = {
    {"help", "", "Show this"},
    {"system", "[TEXT]", "Set the system prompt (without TEXT: show it; \"\" removes it)"},
    {"reset", "", "Forget the conversation; the system prompt and the settings stay"},
    {"save", "FILE", "Write the conversation to a file"},
    {"load", "FILE", "Go on with the conversation of a file"},
    {"set", "[NAME VALUE]", "Change how answers are made (alone: show all settings)"},
    {"stats", "", "Speed and sizes of the last answer and of all of them"},
    {"quit", "", "Leave (also /exit, /bye, Ctrl-D)"},
};

std::string_view trimmed(std::string_view text) {
  size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) {
    return "";
  }
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

std::string unquoted(const std::string& text) {
  bool quoted = text.size() >= 2 && (text.front() == '"' || text.front() == '\'') &&
                text.back() == text.front();
  return quoted ? text.substr(1, text.size() - 2) : text;
}

void add(GenerationStats& total, const GenerationStats& stats) {
  total.prompt_tokens += stats.prompt_tokens;
  total.cached_tokens += stats.cached_tokens;
  total.generated_tokens += stats.generated_tokens;
  total.prompt_seconds += stats.prompt_seconds;
  total.generation_seconds += stats.generation_seconds;
}

}  // namespace

std::optional<ChatCommand> parse_chat_command(std::string_view line) {
  std::string_view text = trimmed(line);
  if (!text.starts_with('/') || text.starts_with("//") || text.starts_with("/ ") ||
      text.size() == 1) {
    return std::nullopt;
  }
  size_t end = std::min(text.find_first_of(" \t\n"), text.size());
  return ChatCommand{std::string(text.substr(1, end - 1)), std::string(trimmed(text.substr(end)))};
}

std::vector<std::string> chat_command_names() {
  std::vector<std::string> names;
  for (const CommandHelp& row : kCommands) {
    names.emplace_back(row.name);
  }
  names.insert(names.end(), {"exit", "bye"});
  return names;
}

Chat::Chat(
    Options options,
    GenerationSettings settings,
    Responder& responder,
    LineSource& lines,
    Print answer,
    Print info)
    : options_(std::move(options)),
      settings_(std::move(settings)),
      responder_(responder),
      lines_(lines),
      answer_(std::move(answer)),
      info_(std::move(info)) {
  conversation_.system = options_.system;
}

// A message: one line, several lines joined by a backslash at their ends, or all lines between two
// """ marks. Nothing when the user broke it off.
std::optional<std::string> Chat::read_message(bool& leave) {
  bool asked_to_leave = false;
  std::string message;
  bool fenced = false;
  bool first = true;
  while (true) {
    Line line = lines_.read(first ? kPrompt : kMore);
    if (line.kind == Line::Kind::end) {
      leave = true;
      return std::nullopt;
    }
    if (line.kind == Line::Kind::interrupt) {
      if (!first || !trimmed(line.text).empty()) {
        return std::nullopt;  // only what was being typed is dropped
      }
      if (asked_to_leave) {
        leave = true;
        return std::nullopt;
      }
      asked_to_leave = true;
      info_("(Ctrl-C again or Ctrl-D leaves)\n");
      continue;
    }
    asked_to_leave = false;
    std::string text = line.text;
    if (first && trimmed(text).starts_with(kFence)) {
      fenced = true;
      text = trimmed(text).substr(kFence.size());
      if (text.ends_with(kFence)) {
        return text.substr(0, text.size() - kFence.size());
      }
    } else if (fenced && std::string_view(text).ends_with(kFence)) {
      text.resize(text.size() - kFence.size());
      if (!text.empty()) {
        message.append("\n").append(text);
      }
      return message;
    }
    bool more = fenced;
    if (!fenced && text.ends_with('\\')) {
      text.pop_back();
      more = true;
    }
    message += (first || (fenced && message.empty()) ? "" : "\n") + text;
    if (!more) {
      return message;
    }
    first = false;
  }
}

void Chat::run() {
  bool leave = false;
  while (!leave) {
    std::optional<std::string> message = read_message(leave);
    if (!message || trimmed(*message).empty()) {
      continue;
    }
    try {
      if (auto command = parse_chat_command(*message)) {
        leave = !obey(*command);
      } else {
        // "//usr" is the message "/usr".
        say(trimmed(*message).starts_with("//") ? std::string(trimmed(*message).substr(1))
                                                : *message);
      }
    } catch (const UserError& error) {
      info_(fmt::format("{}\n", error.what()));
    }
  }
}

void Chat::say(const std::string& text) {
  if (!options_.keep_turns) {
    conversation_.messages.clear();
  }
  conversation_.messages.push_back({"user", text});
  Reply reply;
  try {
    reply = responder_.reply(conversation_, settings_, answer_);
  } catch (...) {
    conversation_.messages.pop_back();  // as if it had not been said, so that it can be said again
    throw;
  }
  if (reply.text.empty() || reply.text.back() != '\n') {
    answer_("\n");
  }
  // What was shown is what was said, also when the user stopped it.
  conversation_.messages.push_back({"assistant", reply.text});
  last_ = reply.stats;
  add(total_, reply.stats);
  answers_++;
  if (reply.interrupted) {
    info_("(stopped)\n");
  } else if (reply.reason == FinishReason::length) {
    const int limit = settings_.sampling.max_tokens;
    info_(
        limit >= 0 && reply.stats.generated_tokens >= limit
            ? fmt::format(
                  "(cut off after {} tokens: \"go on\" continues, /set max-tokens -1 lifts the "
                  "limit)\n",
                  limit)
            : "(cut off: the context is full; /reset begins anew)\n");
  }
  if (options_.verbose) {
    info_(speed_line(reply.stats) + "\n");
  }
}

bool Chat::obey(const ChatCommand& command) {
  auto want_file = [&] {
    if (command.rest.empty()) {
      throw UserError("/{}: which file? /{} FILE", command.name, command.name);
    }
    return expand_home(unquoted(command.rest));
  };
  if (command.name == "quit" || command.name == "exit" || command.name == "bye") {
    return false;
  }
  if (command.name == "help" || command.name == "?") {
    show_help();
  } else if (command.name == "system") {
    if (command.rest.empty()) {
      info_(conversation_.system ? *conversation_.system + "\n" : "(no system prompt)\n");
      return true;
    }
    std::string text = unquoted(command.rest);
    conversation_.system = text.empty() ? std::nullopt : std::optional(text);
    info_(text.empty() ? "(system prompt removed)\n" : "(system prompt set)\n");
  } else if (command.name == "reset" || command.name == "clear") {
    conversation_.messages.clear();
    info_("(conversation forgotten)\n");
  } else if (command.name == "save") {
    std::filesystem::path path = want_file();
    save_conversation(conversation_, options_.model, path);
    info_(fmt::format("({} messages saved to {})\n", conversation_.messages.size(), path.string()));
  } else if (command.name == "load") {
    std::filesystem::path path = want_file();
    conversation_ = load_conversation(path);
    info_(fmt::format(
        "({} messages loaded from {})\n", conversation_.messages.size(), path.string()));
  } else if (command.name == "set") {
    set(command.rest);
  } else if (command.name == "stats") {
    show_stats();
  } else {
    auto near = closest(command.name, chat_command_names());
    throw UserError(
        "/{}: unknown command{} (/help lists them; // begins a message with a slash)",
        command.name,
        near ? "; did you mean /" + *near + "?" : "");
  }
  return true;
}

void Chat::set(const std::string& rest) {
  if (rest.empty()) {
    show_settings();
    return;
  }
  size_t end = std::min(rest.find_first_of(" \t="), rest.size());
  std::string name = rest.substr(0, end);
  std::string value(trimmed(std::string_view(rest).substr(std::min(end + 1, rest.size()))));
  const Setting* setting = find_setting(name);
  if (setting == nullptr) {
    std::vector<std::string> names;
    for (const Setting& row : generation_settings()) {
      names.emplace_back(row.name);
    }
    auto near = closest(name, names);
    throw UserError(
        "/set {}: unknown setting{} (/set alone lists them)",
        name,
        near ? "; did you mean " + *near + "?" : "");
  }
  if (value.empty()) {
    info_(fmt::format("{} {}\n", setting->name, setting->show(settings_)));
    return;
  }
  // A list grows with every /set; "none" empties it.
  if (setting->clear != nullptr && (value == "none" || value == "off")) {
    setting->clear(settings_);
  } else {
    setting->set(settings_, "/set " + std::string(setting->name), unquoted(value));
  }
  info_(fmt::format("{} {}\n", setting->name, setting->show(settings_)));
}

void Chat::show_settings() {
  std::string out;
  for (const Setting& setting : generation_settings()) {
    out += fmt::format("  {:<22}{}\n", setting.name, setting.show(settings_));
  }
  info_(out);
}

void Chat::show_stats() {
  if (!last_) {
    info_("(no answer yet)\n");
    return;
  }
  std::string out = fmt::format("last:  {}\n", speed_line(*last_));
  out += fmt::format(
      "all:   {} answers, {} prompt tokens of which {} came from the cache, {} generated "
      "({:.0f} tok/s)\n",
      answers_,
      total_.prompt_tokens,
      total_.cached_tokens,
      total_.generated_tokens,
      total_.generation_seconds > 0
          ? std::max(total_.generated_tokens - answers_, 0) / total_.generation_seconds
          : 0.0);
  info_(out);
}

void Chat::show_help() {
  std::string out;
  for (const CommandHelp& row : kCommands) {
    std::string head = fmt::format("/{} {}", row.name, row.arguments);
    out += fmt::format("  {:<22}{}\n", head, row.help);
  }
  out +=
      "Several lines: paste them, press Alt-Enter, end a line with \\, or put them between "
      "\"\"\".\n"
      "Ctrl-C stops an answer. A message that begins with a slash is written with two.\n";
  info_(out);
}

}  // namespace quince::cli
