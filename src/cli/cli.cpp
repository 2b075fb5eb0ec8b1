#include "cli/cli.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/interrupts.h"
#include "cli/terminal.h"

#ifndef QUINCE_VERSION
#error "QUINCE_VERSION comes from the build"
#endif

namespace quince::cli {

namespace {

constexpr int kOurFault = 1;
constexpr int kUsersFault = 2;

constexpr std::array<Command, 5> kCommands = {{
    {"run", "Answer a question, or chat", add_run},
    {"pull", "Download a model from Hugging Face", add_pull},
    {"inspect", "Show what is in a model and what memory it needs", add_inspect},
    {"convert", "Turn any readable model into MLX safetensors, quantized or not", add_convert},
    {"bench", "Measure prompt and decode speed", add_bench},
}};

std::string overview() {
  std::string text =
      "Quince runs large language models on this machine.\n\n"
      "Usage: quince COMMAND [ARGUMENTS]\n\nCommands:\n";
  for (const Command& command : kCommands) {
    text += fmt::format("  {:<10}{}\n", command.name, command.summary);
  }
  text +=
      "\nOther:\n"
      "  --version Show the version\n"
      "  --help    Show this; quince COMMAND --help shows a command's flags\n"
      "\nStart with:  quince run MODEL \"What is a quince?\"\n";
  return text;
}

const Command* find_command(std::string_view name) {
  auto found = std::find_if(kCommands.begin(), kCommands.end(), [&](const Command& command) {
    return command.name == name;
  });
  return found == kCommands.end() ? nullptr : found;
}

[[noreturn]] void refuse_command(const std::string& name) {
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    names.emplace_back(command.name);
  }
  if (auto near = closest(name, names)) {
    throw UserError("{}: unknown command; did you mean {}? (see: quince --help)", name, *near);
  }
  if (name.starts_with("-")) {
    throw UserError("{}: unknown option; a command comes first (see: quince --help)", name);
  }
  throw UserError("{}: unknown command (see: quince --help)", name);
}

int dispatch(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "{}", overview());
    return kUsersFault;
  }
  std::string name = argv[1];
  if (name == "--version" || name == "-V" || name == "version") {
    write_stdout("quince " QUINCE_VERSION "\n");
    return 0;
  }
  std::vector<std::string> arguments(argv + 2, argv + argc);
  if (name == "help" && !arguments.empty()) {  // quince help run
    name = arguments.front();
    arguments = {"--help"};
  }
  if (name == "--help" || name == "-h" || name == "help") {
    write_stdout(overview());
    return 0;
  }
  const Command* command = find_command(name);
  if (command == nullptr) {
    refuse_command(name);
  }
  CLI::App app(std::string(command->summary), std::string(command->name));
  app.set_help_flag();  // parse_flags adds ours
  Action action = command->add(app);
  if (!parse_flags(app, std::move(arguments))) {
    write_stdout(help_text(app, terminal_width()));
    return 0;
  }
  return action();
}

void complain(std::string_view message) {
  fmt::print(stderr, "quince: {}\n", printable(message));
}

// An exception on a thread of ours that nobody caught: say so and leave, without an abort's noise.
[[noreturn]] void on_terminate() {
  const char* what = "unknown exception";
  try {
    if (auto current = std::current_exception()) {
      std::rethrow_exception(current);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "quince: internal error: %s\n", error.what());
    _exit(kOurFault);
  } catch (...) {
  }
  std::fprintf(stderr, "quince: internal error: %s\n", what);
  _exit(kOurFault);
}

}  // namespace

std::span<const Command> commands() {
  return kCommands;
}

int main(int argc, char** argv) {
  std::set_terminate(on_terminate);
  signal(SIGPIPE, SIG_IGN);  // a write then fails with EPIPE: OutputClosed
  try {
    return dispatch(argc, argv);
  } catch (const UserError& error) {
    complain(error.what());
    return kUsersFault;
  } catch (const Interrupted& interrupted) {
    return 128 + interrupted.signal;
  } catch (const OutputClosed&) {
    return 128 + SIGPIPE;
  } catch (const std::bad_alloc&) {
    complain("out of memory");
    return kOurFault;
  } catch (const std::exception& error) {
    complain(fmt::format("internal error: {}", error.what()));
    return kOurFault;
  }
}

}  // namespace quince::cli
