// The help of one command, made from its flags: grouped, aligned and wrapped. Part of cli/args.h.
#include <algorithm>

#include <CLI/CLI.hpp>

#include "cli/args.h"

namespace quince::cli {

namespace {

constexpr size_t kIndent = 28;  // where descriptions begin

// Breaks text at spaces into lines of at most width characters.
std::vector<std::string> wrap(const std::string& text, size_t width) {
  std::vector<std::string> lines;
  std::string line;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = std::min(text.find_first_of(" \n", begin), text.size());
    std::string word = text.substr(begin, end - begin);
    if (!line.empty() && line.size() + 1 + word.size() > width) {
      lines.push_back(std::move(line));
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
    if (end < text.size() && text[end] == '\n') {
      lines.push_back(std::move(line));
      line.clear();
    }
    begin = end + 1;
  }
  if (!line.empty() || lines.empty()) {
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string names_column(const CLI::Option& option) {
  if (option.get_positional()) {
    return "  " + option.get_name(true, false);
  }
  const auto& shorts = option.get_snames();
  const auto& longs = option.get_lnames();
  std::string text =
      shorts.empty() ? "      " : "  -" + shorts.front() + (longs.empty() ? "" : ", ");
  if (!longs.empty()) {
    text += "--" + longs.front();
  }
  if (option.get_items_expected_max() > 0 && !option.get_type_name().empty()) {
    text += " " + option.get_type_name();
  }
  return text;
}

std::string description(const CLI::Option& option) {
  std::string text = option.get_description();
  std::string also;
  for (size_t i = 1; i < option.get_snames().size(); i++) {
    also += (also.empty() ? "-" : ", -") + option.get_snames()[i];
  }
  for (size_t i = 1; i < option.get_lnames().size(); i++) {
    also += (also.empty() ? "--" : ", --") + option.get_lnames()[i];
  }
  return also.empty() ? text : text + " (also " + also + ")";
}

void append_option(std::string& out, const CLI::Option& option, size_t width) {
  std::string names = names_column(option);
  std::vector<std::string> lines = wrap(description(option), width - kIndent);
  if (names.size() + 2 > kIndent) {
    out += names + "\n" + std::string(kIndent, ' ') + lines.front() + "\n";
  } else {
    out += names + std::string(kIndent - names.size(), ' ') + lines.front() + "\n";
  }
  for (size_t i = 1; i < lines.size(); i++) {
    out += std::string(kIndent, ' ') + lines[i] + "\n";
  }
}

}  // namespace

namespace {

// Prose is wrapped; lines that begin with a space (examples) stay as they are.
std::string footer(const std::string& text, size_t columns) {
  std::string out;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (line.starts_with(' ')) {
      out += line + "\n";
    } else {
      for (const std::string& part : wrap(line, columns)) {
        out += part + "\n";
      }
    }
    begin = end + 1;
  }
  return out;
}

std::string usage(const CLI::App& app) {
  std::string text = "Usage: quince " + app.get_name();
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      const std::string name = option->get_name(true, false);
      text += option->get_type_name().empty() ? " " + name : " [" + name + "]";
    }
  }
  return text + " [FLAGS]\n";
}

}  // namespace

std::string help_text(const CLI::App& app, int width) {
  size_t columns = static_cast<size_t>(std::clamp(width, 60, 110));
  std::string out;
  for (const std::string& line : wrap(app.get_description(), columns)) {
    out += line + "\n";
  }
  out += "\n" + usage(app);
  std::vector<std::string> groups;
  for (const CLI::Option* option : app.get_options()) {
    const std::string& group = option->get_group();
    if (!group.empty() && std::find(groups.begin(), groups.end(), group) == groups.end()) {
      groups.push_back(group);
    }
  }
  for (const std::string& group : groups) {
    out += "\n" + group + ":\n";
    for (const CLI::Option* option : app.get_options()) {
      if (option->get_group() == group) {
        append_option(out, *option, columns);
      }
    }
  }
  if (!app.get_footer().empty()) {
    out += "\n" + footer(app.get_footer(), columns);
  }
  return out;
}

}  // namespace quince::cli
