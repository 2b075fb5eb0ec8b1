#include "cli/cli.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/closest.h"
#include "base/error.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/interrupts.h"
#include "cli/say.h"
#include "cli/terminal.h"
#include "tokenizer/out_of_memory.h"
#include "weights/model_names.h"

#ifndef QUINCE_VERSION
#error "QUINCE_VERSION comes from the build"
#endif

namespace quince::cli {

namespace {

constexpr int kOurFault = 1;
constexpr int kUsersFault = 2;

constexpr std::array<Command, 13> kCommands = {{
    {"run", "Answer a question, or chat", add_run},
    {"serve", "Answer over HTTP, as OpenAI's clients expect it", add_serve},
    {"gateway", "Pass requests on to other servers, with keys and limits", add_gateway},
    {"pull", "Download a model from Hugging Face", add_pull},
    {"list", "Show the models that were pulled, and the aliases", add_list},
    {"inspect", "Show what is in a model and what memory it needs", add_inspect},
    {"convert", "Turn any readable model into MLX safetensors, quantized or not", add_convert},
    {"bench", "Measure prompt and decode speed", add_bench},
    {"bench serve", "Measure what many clients at once see", add_bench_serve},
    {"cache build", "Compute a prompt once and keep it in a file", add_cache_build},
    {"cache inspect", "Show what is in a prompt cache", add_cache_inspect},
    {"key new", "Make a key for the gateway's users", add_key_new},
    {"key hash", "Hash a key that is there already", add_key_hash},
}};

// What other programs call them.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"chat", "run"},
    {"generate", "run"},
    {"server", "serve"},
    {"ask", "run"},
    {"download", "pull"},
    {"ls", "list"},
    {"models", "list"},
    {"alias", "list"},
    {"aliases", "list"},
    {"show", "inspect"},
    {"info", "inspect"},
    {"quantize", "convert"},
    {"cache", "cache build"},
    {"cache_prompt", "cache build"},
    {"benchmark", "bench"},
};

std::string overview() {
  std::string text =
      "Quince runs large language models on this machine.\n\n"
      "Usage: quince COMMAND [ARGUMENTS]\n\nCommands:\n";
  for (const Command& command : kCommands) {
    text += fmt::format("  {:<13}{}\n", command.name, command.summary);
  }
  text +=
      "\nOther:\n"
      "  --version    Show the version\n"
      "  --help       Show this; quince COMMAND --help shows a command's flags\n"
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
  for (const auto& [other, ours] : kOtherNames) {
    if (name == other) {
      throw UserError("{}: unknown command; did you mean {}? (see: quince --help)", name, ours);
    }
  }
  std::error_code ignored;
  if (name.find('/') != std::string::npos || std::filesystem::exists(name, ignored)) {
    throw UserError("{}: a command comes first; did you mean quince run {}?", name, name);
  }
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

// bench serv: neither a model nor a command.
void refuse_near_second_word(const std::string& name, const std::string& word) {
  std::vector<std::string> words;
  for (const Command& command : kCommands) {
    if (command.name.starts_with(name + " ")) {
      words.emplace_back(command.name.substr(name.size() + 1));
    }
  }
  const auto near = closest(word, words);
  std::error_code ignored;
  if (near && !std::filesystem::exists(word, ignored) && !model_aliases().contains(word)) {
    throw UserError("{} {}: did you mean quince {} {}?", name, word, name, *near);
  }
}

int dispatch(int argc, char** argv) {
  if (argc < 2) {
    say("{}", overview());
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
  // Commands of two words: bench serve. What else follows is the command's own.
  if (!arguments.empty()) {
    if (const Command* longer = find_command(name + " " + arguments.front())) {
      command = longer;
      arguments.erase(arguments.begin());
    } else {
      refuse_near_second_word(name, arguments.front());
    }
  }
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
  say("quince: {}\n", printable(message));
}

// What is nobody's fault has a sentence of its own; nullptr for the rest.
const char* misfortune(const std::exception& error) {
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  if (system != nullptr && system->code() == std::errc::resource_unavailable_try_again) {
    return "cannot start a thread: there is too little memory, or there are too many processes";
  }
  // MLX has no type for it.
  bool memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
                std::strstr(error.what(), "Unable to allocate") != nullptr;
  return memory ? "out of memory" : nullptr;
}

[[noreturn]] void on_out_of_memory() {
  constexpr std::string_view kSentence = "quince: out of memory\n";
  restore_terminal();
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, kSentence.data(), kSentence.size());
  _exit(kOurFault);
}

// An exception on a thread of ours that nobody caught: say so and leave, without an abort's noise.
[[noreturn]] void on_terminate() {
  restore_terminal();
  try {
    if (auto current = std::current_exception()) {
      std::rethrow_exception(current);
    }
  } catch (const std::exception& error) {
    if (const char* sentence = misfortune(error)) {
      std::fprintf(stderr, "quince: %s\n", sentence);
    } else {
      std::fprintf(stderr, "quince: internal error: %s\n", error.what());
    }
    _exit(kOurFault);
  } catch (...) {
  }
  std::fprintf(stderr, "quince: internal error: unknown exception\n");
  _exit(kOurFault);
}

// Of the three standard files those that are closed: the next file that is opened would take the
// number, and messages would be written into it. In the wrong direction, so that whoever wants one
// still hears that it is not there; only messages go to nowhere.
void occupy_standard_files() {
  constexpr std::array<int, 3> kModes = {O_WRONLY, O_RDONLY, O_WRONLY};
  for (int file = 0; file < 3; file++) {
    if (fcntl(file, F_GETFD) < 0) {
      [[maybe_unused]] int got = open("/dev/null", kModes[static_cast<size_t>(file)]);
    }
  }
}

}  // namespace

std::string_view version() {
  return QUINCE_VERSION;
}

std::span<const Command> commands() {
  return kCommands;
}

int main(int argc, char** argv) {
  std::set_terminate(on_terminate);
  on_bridge_out_of_memory(on_out_of_memory);
  occupy_standard_files();
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
  } catch (const std::exception& error) {
    const char* sentence = misfortune(error);
    complain(sentence != nullptr ? sentence : fmt::format("internal error: {}", error.what()));
    return kOurFault;
  }
}

}  // namespace quince::cli
