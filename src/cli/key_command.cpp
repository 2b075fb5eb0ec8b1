// quince key new, quince key hash: keys for quince.toml, which has only their hashes.
#include <algorithm>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/prompt.h"
#include "cli/terminal.h"
#include "gateway/secret.h"

namespace quince::cli {

namespace {

// As a TOML key may be written without quotes.
bool is_bare(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
  });
}

std::string entry(const std::string& name, const std::string& hash) {
  return fmt::format("[keys.{}]\nhash = \"{}\"\n", name, hash);
}

std::string checked_name(const std::optional<std::string>& name) {
  if (!name) {
    return "NAME";
  }
  if (!is_bare(*name)) {
    throw UserError("'{}': want a name of letters, digits, - and _", *name);
  }
  return *name;
}

}  // namespace

Action add_key_new(CLI::App& app) {
  auto name = std::make_shared<std::optional<std::string>>();
  FlagGroup arguments(app, "Arguments");
  arguments.positional(
      "NAME", *name, "Whose it is, as metrics and messages say it", FlagGroup::Presence::optional);
  app.footer(
      "The first line is the key: give it to its user, it is not kept anywhere. The rest goes into "
      "quince.toml, which has only its hash.");
  return [name] {
    const std::string called = checked_name(*name);
    const std::string secret = gateway::new_secret();
    write_stdout(secret + "\n\n" + entry(called, gateway::hash_secret(secret)));
    return 0;
  };
}

Action add_key_hash(CLI::App& app) {
  auto name = std::make_shared<std::optional<std::string>>();
  auto file = std::make_shared<std::optional<std::string>>();
  FlagGroup arguments(app, "Arguments");
  arguments.positional(
      "NAME", *name, "Whose it is, as metrics and messages say it", FlagGroup::Presence::optional);
  arguments.text(
      "-f,--file", "FILE", *file, "Read the key from there (default: -, standard input)");
  app.footer(
      "The key is not taken from the command line, which others can see.\n\n"
      "Example:\n"
      "  quince key hash alice < alice.key >> quince.toml");
  return [name, file] {
    const std::string called = checked_name(*name);
    std::string secret = read_prompt_file(file->value_or("-"));
    while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) {
      secret.pop_back();
    }
    write_stdout(entry(called, gateway::hash_secret(secret)));
    return 0;
  };
}

}  // namespace quince::cli
