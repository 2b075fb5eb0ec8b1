#include "cli/args.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include <fmt/ranges.h>

namespace quince::cli {

namespace {

constexpr const char* kHiddenGroup = "";

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
    out_of_range(
        flag,
        value,
        fmt::format("{}", min),
        max == std::numeric_limits<double>::max() ? "" : fmt::format("{}", max));
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

std::optional<std::string> closest(
    std::string_view word, const std::vector<std::string>& candidates) {
  std::optional<std::string> best;
  size_t best_distance = std::max<size_t>(word.size() / 3, 1) + 1;
  for (const std::string& candidate : candidates) {
    // Edit distance with neighbouring swaps; three rows are enough.
    size_t columns = candidate.size() + 1;
    std::vector<size_t> before(columns), above(columns), row(columns);
    std::iota(above.begin(), above.end(), size_t{0});
    for (size_t i = 1; i <= word.size(); i++) {
      row[0] = i;
      for (size_t j = 1; j < columns; j++) {
        size_t replace = above[j - 1] + (word[i - 1] == candidate[j - 1] ? 0 : 1);
        row[j] = std::min({replace, above[j] + 1, row[j - 1] + 1});
        if (i > 1 && j > 1 && word[i - 1] == candidate[j - 2] && word[i - 2] == candidate[j - 1]) {
          row[j] = std::min(row[j], before[j - 2] + 1);
        }
      }
      std::swap(before, above);
      std::swap(above, row);
    }
    if (above.back() < best_distance) {
      best_distance = above.back();
      best = candidate;
    }
  }
  return best;
}

void FlagGroup::on(const std::string& names, bool& target, const std::string& help) {
  app_.add_flag(names, target, help)
      ->group(title_)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

void FlagGroup::value(
    const std::string& names,
    const std::string& label,
    const std::string& help,
    std::function<void(const std::string&, const std::string&)> take) {
  std::string flag = display_name(names);
  app_.add_option_function<std::vector<std::string>>(
          names,
          [flag, take](const std::vector<std::string>& values) {
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
    const std::string& name, std::optional<std::string>& target, const std::string& help) {
  app_.add_option_function<std::string>(
          name, [&target](const std::string& text) { target = text; }, help)
      ->allow_extra_args(false)
      ->type_name("")
      ->group(title_);
}

namespace {

void foreign_flag(
    CLI::App& app, const std::string& names, bool takes_value, std::function<void()> act) {
  CLI::Option* option = nullptr;
  if (takes_value) {
    option = app.add_option_function<std::vector<std::string>>(
                    names, [act](const std::vector<std::string>&) { act(); })
                 ->expected(1)
                 ->allow_extra_args(false)
                 ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  } else {
    option = app.add_flag_function(names, [act](int64_t) { act(); });
  }
  option->group(kHiddenGroup);
}

}  // namespace

void refuse_flag(CLI::App& app, const std::string& names, bool takes_value, std::string reason) {
  foreign_flag(app, names, takes_value, [flag = display_name(names), reason = std::move(reason)] {
    throw UserError("{}: {}", flag, reason);
  });
}

void accept_flag(CLI::App& app, const std::string& names, bool takes_value, std::string reason) {
  foreign_flag(app, names, takes_value, [flag = display_name(names), reason = std::move(reason)] {
    fmt::print(stderr, "note: {}: {}\n", flag, reason);
  });
}

namespace {

// llama.cpp's short names of several letters; CLI11 would read -ngl as -n with the value "gl".
struct LongShort {
  std::string_view from;
  const char* to;
};
constexpr LongShort kLongShorts[] = {
    {"-cnv", "--conversation"},
    {"-ctk", "--cache-type-k"},
    {"-ctv", "--cache-type-v"},
    {"-fa", "--flash-attn"},
    {"-hf", "--model"},
    {"-md", "--draft-model"},
    {"-mli", "--multiline-input"},
    {"-ngl", "--n-gpu-layers"},
    {"-no-cnv", "--raw"},
    {"-np", "--parallel"},
    {"-st", "--single-turn"},
    {"-sys", "--system"},
    {"-sysf", "--system-file"},
    {"-tb", "--threads-batch"},
    {"-ub", "--prefill-chunk"},
};

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

[[noreturn]] void refuse_extra(const CLI::App& app, const std::string& extra) {
  std::string see = fmt::format("see: quince {} --help", app.get_name());
  if (!extra.starts_with("-") || extra == "-") {
    throw UserError("'{}': one argument too many; quote a text with spaces ({})", extra, see);
  }
  std::string flag = extra.substr(0, extra.find('='));
  if (auto near = closest(flag, all_long_names(app))) {
    throw UserError("{}: unknown option; did you mean {}? ({})", flag, *near, see);
  }
  throw UserError("{}: unknown option ({})", flag, see);
}

}  // namespace

bool parse_flags(CLI::App& app, std::vector<std::string> arguments) {
  for (std::string& argument : arguments) {
    if (argument == "--") {
      break;
    }
    for (const LongShort& row : kLongShorts) {
      if (argument == row.from && app.get_option_no_throw(row.to) != nullptr) {
        argument = row.to;
        break;
      }
    }
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
  std::reverse(arguments.begin(), arguments.end());  // CLI11 wants them so
  app.allow_extras(false);
  try {
    app.parse(arguments);
  } catch (const CLI::ExtrasError&) {
    refuse_extra(app, app.remaining(true).front());
  } catch (const CLI::ArgumentMismatch& error) {
    throw UserError("{} (see: quince {} --help)", error.what(), app.get_name());
  } catch (const CLI::ParseError& error) {
    throw UserError("{} (see: quince {} --help)", error.what(), app.get_name());
  }
  return true;
}

}  // namespace quince::cli
