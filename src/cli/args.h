// Flags and their values. Every complaint about a value names the flag, the value and what is
// wanted, so values are parsed here and not by CLI11, which only splits the command line.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace quince::cli {

// Values. `flag` is what the message calls the value ("--temp"). All throw UserError.
double parse_real(std::string_view flag, std::string_view value, double min, double max);
int64_t parse_integer(std::string_view flag, std::string_view value, int64_t min, int64_t max);
// Tokens: an integer that may carry k (x 1024) or m (x 1048576): "32k".
int64_t parse_count(std::string_view flag, std::string_view value, int64_t min, int64_t max);
// Bytes: "24GB", "512M", "1.5GiB"; units are powers of 1024 with or without the i, as for memory.
uint64_t parse_bytes(std::string_view flag, std::string_view value);
// "128,512": no empty items.
std::vector<int64_t> parse_counts(
    std::string_view flag, std::string_view value, int64_t min, int64_t max);

// Adds flags in one help group. names: "-n,--max-tokens,--n-predict"; the first short and the first
// long one are shown, the others are mentioned. label: the value's name in the help ("N").
class FlagGroup {
 public:
  FlagGroup(CLI::App& app, std::string title) : app_(app), title_(std::move(title)) {}

  void on(const std::string& names, bool& target, const std::string& help);
  // Takes such a flag back: of the two, the one that is given last counts. Does not show in the
  // help.
  void off(const std::string& names, bool& target);
  // take(flag, value) may throw UserError; called once for every time the flag is given.
  void value(
      const std::string& names,
      const std::string& label,
      const std::string& help,
      std::function<void(const std::string& flag, const std::string& value)> take);
  void text(
      const std::string& names,
      const std::string& label,
      std::optional<std::string>& target,
      const std::string& help);
  // Likewise, the name of a file: one that is empty is a UserError.
  void file(
      const std::string& names,
      const std::string& label,
      std::optional<std::string>& target,
      const std::string& help);
  // One of a closed list.
  void choice(
      const std::string& names,
      const std::vector<std::string>& choices,
      std::optional<std::string>& target,
      const std::string& help);
  // An argument without a flag. The usage line puts one that may be left out into brackets.
  enum class Presence { needed, optional };
  void positional(
      const std::string& name,
      std::optional<std::string>& target,
      const std::string& help,
      Presence presence = Presence::needed);

 private:
  CLI::App& app_;
  std::string title_;
};

// Flags of other runners that mean nothing here: taken off the command line with a reason. They do
// not show in the help. refuse: UserError "<flag>: <reason>"; accept: the reason goes to stderr as
// a note. names: each is called by its own name.
void refuse_flag(CLI::App& app, const std::string& names, bool takes_value, std::string reason);
void accept_flag(CLI::App& app, const std::string& names, bool takes_value, std::string reason);
// Likewise one that may be followed by on, off or auto (1, 0, true, false), and by nothing else:
// "-fa MODEL" leaves MODEL alone.
void switch_flag(CLI::App& app, const std::string& names, bool taken, const std::string& reason);

// The flag that a name stands for: its own, or for llama.cpp's short names with several letters
// the long one. Null: it is not known.
const CLI::Option* find_flag(const CLI::App& app, const std::string& name);

// Splits and runs the callbacks. Rewrites llama-server's short names with several letters (-ngl)
// first. Throws UserError: unknown flag (with the nearest one), missing value, surplus argument.
// Returns false when
// --help was asked for.
bool parse_flags(CLI::App& app, std::vector<std::string> arguments);

// The text of `quince COMMAND --help`, wrapped to width columns.
std::string help_text(const CLI::App& app, int width);

}  // namespace quince::cli
