#include "cli/settings.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/ranges.h>

#include "cli/args.h"

namespace quince::cli {

namespace {

using Settings = GenerationSettings;
constexpr double kNoMaximum = std::numeric_limits<double>::max();
constexpr int64_t kIntMax = std::numeric_limits<int>::max();

std::string show_off(double value, double off) {
  return value == off ? fmt::format("{} (off)", value) : fmt::format("{:.4g}", value);
}

// Backslash escapes, so that "\n" can be given as a stop text: \n \t \r \\, others stay.
std::string unescape(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); i++) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    switch (text[++i]) {
      case 'n':
        out += '\n';
        break;
      case 't':
        out += '\t';
        break;
      case 'r':
        out += '\r';
        break;
      case '\\':
        out += '\\';
        break;
      default:
        out += '\\';
        out += text[i];
    }
  }
  return out;
}

std::string quoted(const std::string& text) {
  return boost::json::serialize(boost::json::value(text));
}

constexpr Setting kSettings[] = {
    {"max-tokens",
     "-n,--max-tokens,--n-predict,--predict",
     "N",
     "Most tokens of an answer; -1: until the model ends it or the context is full",
     [](Settings& s, std::string_view flag, const std::string& value) {
       // Beyond int is as good as no limit: the context ends it long before.
       int64_t count = parse_integer(flag, value, -1, std::numeric_limits<int64_t>::max());
       s.sampling.max_tokens = static_cast<int>(std::min(count, kIntMax));
     },
     [](const Settings& s) {
       return s.sampling.max_tokens < 0 ? std::string("-1 (no limit)")
                                        : std::to_string(s.sampling.max_tokens);
     }},
    {"temp",
     "--temp,--temperature",
     "T",
     "Randomness: 0 always takes the likeliest token",
     [](Settings& s, std::string_view flag, const std::string& value) {
       s.sampling.temperature = static_cast<float>(parse_real(flag, value, 0, 1e9));
     },
     [](const Settings& s) {
       return s.sampling.temperature == 0 ? std::string("0 (greedy)")
                                          : fmt::format("{:.4g}", s.sampling.temperature);
     }},
    {"top-p",
     "--top-p",
     "P",
     "Only the likeliest tokens that together reach probability P; 1: off",
     [](Settings& s, std::string_view flag, const std::string& value) {
       s.sampling.top_p = static_cast<float>(parse_real(flag, value, 0, 1));
     },
     [](const Settings& s) { return show_off(s.sampling.top_p, 1); }},
    {"top-k",
     "--top-k",
     "K",
     "Only the K likeliest tokens; 0: off",
     [](Settings& s, std::string_view flag, const std::string& value) {
       s.sampling.top_k = static_cast<int>(parse_integer(flag, value, 0, kIntMax));
     },
     [](const Settings& s) { return show_off(s.sampling.top_k, 0); }},
    {"min-p",
     "--min-p",
     "P",
     "Only tokens at least P times as likely as the likeliest; 0: off",
     [](Settings& s, std::string_view flag, const std::string& value) {
       s.sampling.min_p = static_cast<float>(parse_real(flag, value, 0, 1));
     },
     [](const Settings& s) { return show_off(s.sampling.min_p, 0); }},
    {"repetition-penalty",
     "--repetition-penalty,--repeat-penalty",
     "R",
     "Makes tokens that came before less likely; 1: off",
     [](Settings& s, std::string_view flag, const std::string& value) {
       s.sampling.repetition_penalty =
           static_cast<float>(parse_real(flag, value, 1e-6, kNoMaximum));
     },
     [](const Settings& s) { return show_off(s.sampling.repetition_penalty, 1); }},
    {"repetition-window",
     "--repetition-window,--repetition-context-size,--repeat-last-n",
     "N",
     "Tokens that the penalty looks back at; -1: all",
     [](Settings& s, std::string_view flag, const std::string& value) {
       s.sampling.repetition_window = static_cast<int>(parse_integer(flag, value, -1, kIntMax));
     },
     [](const Settings& s) { return std::to_string(s.sampling.repetition_window); }},
    {"seed",
     "-s,--seed",
     "N",
     "Makes a random answer repeatable; -1: another one every time",
     [](Settings& s, std::string_view flag, const std::string& value) {
       if (value == "random" || value == "-1") {
         s.sampling.seed.reset();
         return;
       }
       s.sampling.seed = static_cast<uint64_t>(
           parse_integer(flag, value, 0, std::numeric_limits<int64_t>::max()));
     },
     [](const Settings& s) {
       return s.sampling.seed ? std::to_string(*s.sampling.seed) : std::string("random");
     }},
    {"stop",
     "--stop,-r,--reverse-prompt",
     "TEXT",
     "End the answer before this text (\\n is a newline); may be given several times",
     [](Settings& s, std::string_view flag, const std::string& value) {
       if (value.empty()) {
         throw UserError("{} '': the text to stop at is empty", flag);
       }
       s.stops.push_back(unescape(value));
     },
     [](const Settings& s) {
       std::vector<std::string> texts;
       std::transform(s.stops.begin(), s.stops.end(), std::back_inserter(texts), quoted);
       return texts.empty() ? std::string("none") : fmt::format("{}", fmt::join(texts, " "));
     }},
};

std::string plain_name(std::string_view name) {
  while (name.starts_with('-')) {
    name.remove_prefix(1);
  }
  std::string plain(name);
  std::replace(plain.begin(), plain.end(), '_', '-');
  return plain;
}

}  // namespace

std::span<const Setting> generation_settings() {
  return kSettings;
}

const Setting* find_setting(std::string_view name) {
  std::string wanted = plain_name(name);
  for (const Setting& setting : kSettings) {
    std::string_view rest = setting.flags;
    while (!rest.empty()) {
      size_t comma = std::min(rest.find(','), rest.size());
      if (plain_name(rest.substr(0, comma)) == wanted) {
        return &setting;
      }
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
  return nullptr;
}

std::vector<std::string> apply_generation_config(
    const boost::json::object& config, SamplingParams& sampling) {
  std::vector<std::string> lines;
  auto number = [&](const char* key, double min, double max) -> std::optional<double> {
    const boost::json::value* value = config.if_contains(key);
    if (value == nullptr || value->is_null()) {
      return std::nullopt;
    }
    double result = std::nan("");
    if (value->is_number()) {
      result = value->to_number<double>();
    }
    if (!(result >= min && result <= max)) {
      lines.push_back(fmt::format(
          "generation_config.json: {} is {}, which is not usable; the default is used",
          key,
          boost::json::serialize(*value)));
      return std::nullopt;
    }
    return result;
  };
  if (auto value = number("temperature", 0, 1e9)) {
    sampling.temperature = static_cast<float>(*value);
  }
  if (auto value = number("top_k", 0, static_cast<double>(kIntMax))) {
    sampling.top_k = static_cast<int>(*value);
  }
  if (auto value = number("top_p", 0, 1)) {
    sampling.top_p = static_cast<float>(*value);
  }
  if (auto value = number("min_p", 0, 1)) {
    sampling.min_p = static_cast<float>(*value);
  }
  if (auto value = number("repetition_penalty", 1e-6, 1e9)) {
    sampling.repetition_penalty = static_cast<float>(*value);
  }
  const boost::json::value* sample = config.if_contains("do_sample");
  if (sample != nullptr && sample->is_bool() && !sample->get_bool()) {
    sampling.temperature = 0;
  }
  return lines;
}

}  // namespace quince::cli
