#include "cli/args.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "base/closest.h"
#include "cli/say.h"

namespace quince::cli {

namespace {

constexpr const char* kHiddenGroup = "";
constexpr const char* kMayBeLeftOut = "?";  // type name of a positional; help.cpp reads it
constexpr const char* kSwitch = "SWITCH";   // type name of what on, off or auto may follow
constexpr double kNoLimit = 1e9;            // of a real number: as good as none

[[noreturn]] void out_of_range(
    std::string_view flag, std::string_view value, std::string_view min, std::string_view max) {
  if (max.empty()) {
    throw UserError("{} {}: want {} or more", flag, value, min);
  }
  throw UserError("{} {}: want a value between {} and {}", flag, value, min, max);
}

std::string bound(int64_t value) {
  return value == std::numeric_limits<int64_t>::max() ? "" : fmt::format("{}", value);
}

// The first long name, else the first short one: how errors call the flag.
std::string display_name(const std::string& names) {
  std::string first;
  for (size_t begin = 0; begin < names.size();) {
    size_t end = std::min(names.find(',', begin), names.size());
    std::string name = names.substr(begin, end - begin);
    if (name.starts_with("--")) {
      return name;
    }
    if (first.empty()) {
      first = name;
    }
    begin = end + 1;
  }
  return first;
}

int64_t integer_prefix(std::string_view flag, std::string_view value, std::string_view& rest) {
  int64_t number = 0;
  std::string_view digits = value;
  if (digits.starts_with('+')) {
    digits.remove_prefix(1);
  }
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error == std::errc::result_out_of_range) {
    throw UserError("{} {}: the number is too large", flag, value);
  }
  if (error != std::errc()) {
    throw UserError("{} '{}': not a whole number", flag, value);
  }
  rest = digits.substr(static_cast<size_t>(end - digits.data()));
  return number;
}

}  // namespace

double parse_real(std::string_view flag, std::string_view value, double min, double max) {
  std::string text(value);
  char* end = nullptr;
  double number = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || std::isspace(static_cast<unsigned char>(text.front()))) {
    throw UserError("{} '{}': not a number", flag, value);
  }
  if (!std::isfinite(number)) {
    throw UserError("{} {}: want a finite number", flag, value);
  }
  if (number < min || number > max) {
    // A limit that only keeps numbers finite is nothing to tell a person who missed the other one.
    const bool limited = number > max || max < kNoLimit;
    out_of_range(flag, value, fmt::format("{}", min), limited ? fmt::format("{}", max) : "");
  }
  return number;
}

int64_t parse_integer(std::string_view flag, std::string_view value, int64_t min, int64_t max) {
  std::string_view rest;
  int64_t number = integer_prefix(flag, value, rest);
  if (!rest.empty()) {
    throw UserError("{} '{}': not a whole number", flag, value);
  }
  if (number < min || number > max) {
    out_of_range(flag, value, fmt::format("{}", min), bound(max));
  }
  return number;
}

int64_t parse_count(std::string_view flag, std::string_view value, int64_t min, int64_t max) {
  std::string_view rest;
  int64_t number = integer_prefix(flag, value, rest);
  int64_t unit = rest.empty()                 ? 1
                 : rest == "k" || rest == "K" ? 1024
                 : rest == "m" || rest == "M" ? 1024 * 1024
                                              : 0;
  if (unit == 0) {
    throw UserError("{} '{}': not a whole number; 32768 and 32k are", flag, value);
  }
  if (__builtin_mul_overflow(number, unit, &number) || number < min || number > max) {
    out_of_range(flag, value, fmt::format("{}", min), bound(max));
  }
  return number;
}

uint64_t parse_bytes(std::string_view flag, std::string_view value) {
  std::string text(value);
  char* end = nullptr;
  double number = std::strtod(text.c_str(), &end);
  std::string unit(end);
  std::transform(unit.begin(), unit.end(), unit.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  if (unit.size() > 1 && unit.ends_with("b")) {
    unit.pop_back();
  }
  if (unit.size() > 1 && unit.ends_with("i")) {
    unit.pop_back();
  }
  static constexpr std::string_view kUnits = "bkmgt";
  size_t power = unit.empty() ? 0 : kUnits.find(unit);
  // No signs, spaces, hexadecimals and words, all of which strtod takes.
  bool digits = end != text.c_str() && std::isdigit(static_cast<unsigned char>(text.front())) &&
                text.find_first_of("xX") == std::string::npos;
  if (!digits || power == std::string_view::npos || unit.size() > 1 || !std::isfinite(number)) {
    throw UserError("{} '{}': not a size; 24GB, 512MB and 1.5GiB are", flag, value);
  }
  double bytes = std::ldexp(number, static_cast<int>(power) * 10);
  if (bytes < 1 || bytes > 0x1p60) {
    throw UserError("{} {}: out of range", flag, value);
  }
  return static_cast<uint64_t>(bytes);
}

std::vector<int64_t> parse_counts(
    std::string_view flag, std::string_view value, int64_t min, int64_t max) {
  std::vector<int64_t> counts;
  std::string_view rest = value;
  while (true) {
    size_t comma = rest.find(',');
    std::string_view item = rest.substr(0, comma);
    if (item.empty()) {
      throw UserError("{} '{}': an item of the list is empty", flag, value);
    }
    counts.push_back(parse_count(flag, item, min, max));
    if (comma == std::string_view::npos) {
      return counts;
    }
    rest.remove_prefix(comma + 1);
  }
}

void FlagGroup::on(const std::string& names, bool& target, const std::string& help) {
  app_.add_flag(names, target, help)
      ->group(title_)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->trigger_on_parse();
}

void FlagGroup::off(const std::string& names, bool& target) {
  app_.add_flag_function(names, [&target](int64_t) { target = false; })
      ->group(kHiddenGroup)
      ->trigger_on_parse();
}

void FlagGroup::value(
    const std::string& names,
    const std::string& label,
    const std::string& help,
    std::function<void(const std::string&, const std::string&)> take) {
  std::string flag = display_name(names);
  app_.add_option_function<std::vector<std::string>>(
          names,
          [flag, take = std::move(take)](const std::vector<std::string>& values) {
            for (const std::string& value : values) {
              take(flag, value);
            }
          },
          help)
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name(label)
      ->group(title_);
}

void FlagGroup::text(
    const std::string& names,
    const std::string& label,
    std::optional<std::string>& target,
    const std::string& help) {
  value(names, label, help, [&target](const std::string&, const std::string& text) {
    target = text;
  });
}

void FlagGroup::file(
    const std::string& names,
    const std::string& label,
    std::optional<std::string>& target,
    const std::string& help) {
  value(names, label, help, [&target](const std::string& flag, const std::string& text) {
    if (text.empty()) {
      throw UserError("{} '': the name of a file is empty", flag);
    }
    target = text;
  });
}

void FlagGroup::choice(
    const std::string& names,
    const std::vector<std::string>& choices,
    std::optional<std::string>& target,
    const std::string& help) {
  auto take = [&target, choices](const std::string& flag, const std::string& text) {
    if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
      throw UserError("{} {}: want one of {}", flag, text, fmt::join(choices, ", "));
    }
    target = text;
  };
  value(names, fmt::format("{}", fmt::join(choices, "|")), help, take);
}

void FlagGroup::positional(
    const std::string& name,
    std::optional<std::string>& target,
    const std::string& help,
    Presence presence) {
  app_.add_option_function<std::string>(
          name, [&target](const std::string& text) { target = text; }, help)
      ->allow_extra_args(false)
      ->type_name(presence == Presence::optional ? kMayBeLeftOut : "")
      ->group(title_);
}

namespace {

// One option for each name, so that act() is told the one that was written.
void foreign_flag(
    CLI::App& app,
    const std::string& names,
    bool takes_value,
    const std::function<void(const std::string& flag)>& act) {
  for (size_t begin = 0; begin < names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    const std::string name = names.substr(begin, end - begin);
    begin = end + 1;
    CLI::Option* option = nullptr;
    if (takes_value) {
      option = app.add_option_function<std::vector<std::string>>(
                      name, [act, name](const std::vector<std::string>&) { act(name); })
                   ->expected(1)
                   ->allow_extra_args(false)
                   ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    } else {
      option = app.add_flag_function(name, [act, name](int64_t) { act(name); });
    }
    option->group(kHiddenGroup);
  }
}

}  // namespace

void refuse_flag(CLI::App& app, const std::string& names, bool takes_value, std::string reason) {
  foreign_flag(app, names, takes_value, [reason = std::move(reason)](const std::string& flag) {
    throw UserError("{}: {}", flag, reason);
  });
}

void accept_flag(CLI::App& app, const std::string& names, bool takes_value, std::string reason) {
  foreign_flag(app, names, takes_value, [reason = std::move(reason)](const std::string& flag) {
    say("note: {}: {}\n", flag, reason);
  });
}

void switch_flag(CLI::App& app, const std::string& names, bool taken, const std::string& reason) {
  taken ? accept_flag(app, names, false, reason) : refuse_flag(app, names, false, reason);
  for (size_t begin = 0; begin < names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    app.get_option(names.substr(begin, end - begin))->type_name(kSwitch);
    begin = end + 1;
  }
}

namespace {

// llama.cpp's short names of several letters; CLI11 would read -ngl as -n with the value "gl".
struct LongShort {
  std::string_view from;
  const char* to;
};
constexpr LongShort kLongShorts[] = {
    {"-b", "--batch-size"},
    {"-bs", "--backend-sampling"},
    {"-Cb", "--cpu-mask-batch"},
    {"-Cbd", "--cpu-mask-batch-draft"},
    {"-Cd", "--cpu-mask-draft"},
    {"-Cr", "--cpu-range"},
    {"-Crb", "--cpu-range-batch"},
    {"-Crd", "--cpu-range-draft"},
    {"-ag", "--agent"},
    {"-cb", "--cont-batching"},
    {"-cl", "--cache-list"},
    {"-cmoe", "--cpu-moe"},
    {"-cmoed", "--cpu-moe-draft"},
    {"-cms", "--checkpoint-min-step"},
    {"-cnv", "--conversation"},
    {"-co", "--color"},
    {"-cram", "--cache-ram"},
    {"-ctk", "--cache-type-k"},
    {"-ctkd", "--cache-type-k-draft"},
    {"-ctv", "--cache-type-v"},
    {"-ctvd", "--cache-type-v-draft"},
    {"-ctxcp", "--ctx-checkpoints"},
    {"-dev", "--device"},
    {"-devd", "--device-draft"},
    {"-dr", "--docker-repo"},
    {"-dt", "--defrag-thold"},
    {"-fa", "--flash-attn"},
    {"-fit", "--fit"},
    {"-fitc", "--fit-ctx"},
    {"-fitt", "--fit-target"},
    {"-hf", "--model"},
    {"-hfd", "--draft-model"},
    {"-hff", "--hf-file"},
    {"-hfr", "--model"},
    {"-hfrd", "--draft-model"},
    {"-hft", "--hf-token"},
    {"-jf", "--json-schema-file"},
    {"-kvo", "--kv-offload"},
    {"-kvu", "--kv-unified"},
    {"-lcd", "--lookup-cache-dynamic"},
    {"-lcs", "--lookup-cache-static"},
    {"-lm", "--load-mode"},
    {"-lv", "--verbosity"},
    {"-lzm", "--lazy-mode"},
    {"-md", "--draft-model"},
    {"-mg", "--main-gpu"},
    {"-mli", "--multiline-input"},
    {"-mm", "--mmproj"},
    {"-mmdev", "--mmproj-device"},
    {"-mmu", "--mmproj-url"},
    {"-mu", "--model-url"},
    {"-ncffn", "--n-cpu-ffn"},
    {"-ncmoe", "--n-cpu-moe"},
    {"-ncmoed", "--n-cpu-moe-draft"},
    {"-ngl", "--n-gpu-layers"},
    {"-ngld", "--n-gpu-layers-draft"},
    {"-nkvo", "--no-kv-offload"},
    {"-no-ag", "--no-agent"},
    {"-no-cnv", "--raw"},
    {"-no-kvu", "--no-kv-unified"},
    {"-nocb", "--no-cont-batching"},
    {"-np", "--parallel"},
    {"-nr", "--no-repack"},
    {"-ot", "--override-tensor"},
    {"-otd", "--override-tensor-draft"},
    {"-rea", "--reasoning"},
    {"-sm", "--split-mode"},
    {"-sp", "--special"},
    {"-sps", "--slot-prompt-similarity"},
    {"-st", "--single-turn"},
    {"-sys", "--system"},
    {"-sysf", "--system-file"},
    {"-tb", "--threads-batch"},
    {"-tbd", "--threads-batch-draft"},
    {"-td", "--threads-draft"},
    {"-to", "--timeout"},
    {"-ts", "--tensor-split"},
    {"-ub", "--prefill-chunk"},
};

// The long name, where it is a flag of the command.
std::string spelled_out(const CLI::App& app, const std::string& name) {
  for (const LongShort& row : kLongShorts) {
    if (name == row.from && app.get_option_no_throw(row.to) != nullptr) {
      return row.to;
    }
  }
  return name;
}

bool takes_value(const CLI::App& app, const std::string& name) {
  const CLI::Option* option = name.starts_with("-") ? app.get_option_no_throw(name) : nullptr;
  return option != nullptr && option->get_items_expected_max() > 0;
}

bool is_switch_word(const std::string& text) {
  static constexpr std::string_view kWords[] = {"on", "off", "auto", "1", "0", "true", "false"};
  return std::find(std::begin(kWords), std::end(kWords), text) != std::end(kWords);
}

// A flag that a word may follow, and the argument behind it that is no such word.
struct NoSwitchWord {
  std::string flag;
  std::string argument;
};

// Flags that a word may follow: the word means nothing here, so it goes.
std::vector<std::string> without_switch_words(
    const CLI::App& app,
    const std::vector<std::string>& arguments,
    std::vector<NoSwitchWord>& others) {
  std::vector<std::string> out;
  bool flags = true;
  bool is_value = false;  // of the flag before it
  bool may_be_word = false;
  for (const std::string& argument : arguments) {
    const bool behind_switch = std::exchange(may_be_word, false);
    const bool word = behind_switch && is_switch_word(argument);
    if (behind_switch && !word && !argument.starts_with("-")) {
      others.push_back({out.back(), argument});
    }
    flags = flags && (is_value || argument != "--");
    if (!flags || std::exchange(is_value, false)) {
      out.push_back(argument);
      continue;
    }
    if (word) {
      continue;
    }
    const std::string name = argument.substr(0, argument.find('='));
    const CLI::Option* option = name.starts_with("-") ? app.get_option_no_throw(name) : nullptr;
    if (option != nullptr && option->get_type_name() == kSwitch) {
      const std::string value = argument.substr(std::min(name.size() + 1, argument.size()));
      if (name.size() < argument.size() && !is_switch_word(value)) {
        throw UserError("{} '{}': want on, off or auto", name, value);
      }
      may_be_word = name.size() == argument.size();
      out.push_back(name);
      continue;
    }
    is_value = takes_value(app, argument);
    out.push_back(argument);
  }
  return out;
}

std::vector<std::string> all_long_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group() == kHiddenGroup) {
      continue;
    }
    for (const std::string& name : option->get_lnames()) {
      names.push_back("--" + name);
    }
  }
  return names;
}

[[noreturn]] void refuse_extra(
    const CLI::App& app, const std::string& extra, const std::vector<NoSwitchWord>& others) {
  std::string see = fmt::format("see: quince {} --help", app.get_name());
  if (!extra.starts_with("-") || extra == "-") {
    // There is one argument too many: most likely the one that was meant for such a flag.
    if (!others.empty()) {
      const NoSwitchWord& other = others.front();
      throw UserError("{} '{}': want on, off or auto ({})", other.flag, other.argument, see);
    }
    throw UserError("'{}': one argument too many; quote a text with spaces ({})", extra, see);
  }
  std::string flag = extra.substr(0, extra.find('='));
  if (auto near = closest(flag, all_long_names(app))) {
    throw UserError("{}: unknown option; did you mean {}? ({})", flag, *near, see);
  }
  throw UserError("{}: unknown option ({})", flag, see);
}

// "--flag=" is an empty value; CLI11 would take the next argument for it.
std::vector<std::string> spell_out_empty_values(
    const CLI::App& app, const std::vector<std::string>& arguments) {
  std::vector<std::string> spelled;
  bool flags = true;
  bool is_value = false;  // of the flag before it
  for (const std::string& argument : arguments) {
    flags = flags && (is_value || argument != "--");
    if (!flags || is_value) {
      spelled.push_back(argument);
      is_value = false;
      continue;
    }
    const bool ends = argument.starts_with("--") && argument.find('=') == argument.size() - 1;
    if (const std::string name = argument.substr(0, argument.size() - 1);
        ends && takes_value(app, name)) {
      spelled.push_back(name);
      spelled.emplace_back();
      continue;
    }
    spelled.push_back(argument);
    is_value = takes_value(app, argument);
  }
  return spelled;
}

}  // namespace

const CLI::Option* find_flag(const CLI::App& app, const std::string& name) {
  return app.get_option_no_throw(spelled_out(app, name));
}

bool parse_flags(CLI::App& app, std::vector<std::string> arguments) {
  const std::string last = arguments.empty() ? "" : arguments.back();
  bool is_value = false;  // of the flag before it
  for (std::string& argument : arguments) {
    if (std::exchange(is_value, false)) {
      continue;
    }
    if (argument == "--") {
      break;
    }
    argument = spelled_out(app, argument);
    is_value = takes_value(app, argument);
  }
  app.set_help_flag();  // our own, so that it works beside a mistake in another flag
  bool help = false;
  app.add_flag("-h,--help", help, "Show this help")->group("Other");
  for (const std::string& argument : arguments) {
    if (argument == "--") {
      break;
    }
    if (argument == "-h" || argument == "--help") {
      return false;
    }
  }
  std::vector<NoSwitchWord> others;
  arguments = spell_out_empty_values(app, without_switch_words(app, arguments, others));
  std::reverse(arguments.begin(), arguments.end());  // CLI11 wants them so
  app.allow_extras(false);
  try {
    app.parse(arguments);
  } catch (const CLI::ExtrasError&) {
    refuse_extra(app, app.remaining(true).front(), others);
  } catch (const CLI::ArgumentMismatch& error) {
    // "--max-tokens: 1 required N missing"; flags that the help does not show have no name there,
    // but what lacks its value is the last argument.
    const std::string message = error.what();
    if (const size_t colon = message.find(": 1 required "); colon != std::string::npos) {
      throw UserError(
          "{}: its value is missing (see: quince {} --help)",
          colon == 0 ? last : message.substr(0, colon),
          app.get_name());
    }
    throw UserError("{} (see: quince {} --help)", message, app.get_name());
  } catch (const CLI::ParseError& error) {
    throw UserError("{} (see: quince {} --help)", error.what(), app.get_name());
  }
  return true;
}

}  // namespace quince::cli
