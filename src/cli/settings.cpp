#include "cli/settings.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/ranges.h>

#include "cli/args.h"
#include "cli/prompt.h"
#include "cli/setting_values.h"

namespace quince::cli {

namespace {

using Settings = GenerationSettings;
constexpr int64_t kIntMax = std::numeric_limits<int>::max();

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

constexpr Setting kEveryday[] = {
    {"max-tokens",
     "-n,--max-tokens,--n-predict,--predict",
     "N",
     "Most tokens of an answer; -1: until the model ends it or the context is full (default: -1)",
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
     "Randomness: 0 always takes the likeliest token (default: 0.8)",
     set_number<&SamplingParams::temperature>,
     [](const Settings& s) {
       return s.sampling.temperature == 0 ? std::string("0 (greedy)")
                                          : fmt::format("{:.4g}", s.sampling.temperature);
     }},
    {"top-p",
     "--top-p",
     "P",
     "Only the likeliest tokens that together reach probability P; 1: off (default: 0.95)",
     set_number<&SamplingParams::top_p>,
     show_number<&SamplingParams::top_p, 1>},
    {"top-k",
     "--top-k",
     "K",
     "Only the K likeliest tokens; 0: off (default: 40)",
     set_number<&SamplingParams::top_k>,
     show_number<&SamplingParams::top_k, 0>},
    {"min-p",
     "--min-p",
     "P",
     "Only tokens at least P times as likely as the likeliest; 0: off (default: 0.05)",
     set_number<&SamplingParams::min_p>,
     show_number<&SamplingParams::min_p, 0>},
    {"repetition-penalty",
     "--repetition-penalty,--repeat-penalty",
     "R",
     "Makes tokens that came before less likely; 1: off (default: 1)",
     set_number<&SamplingParams::repetition_penalty>,
     show_number<&SamplingParams::repetition_penalty, 1>},
    {"repetition-window",
     "--repetition-window,--repetition-context-size,--repeat-last-n",
     "N",
     "Tokens of prompt and answer that this penalty looks back at; -1: all (default: 64)",
     set_number<&SamplingParams::repeat_last_n>,
     show_number<&SamplingParams::repeat_last_n, kNeverOff>},
    {"seed",
     "-s,--seed",
     "N",
     "Makes a random answer repeatable; -1: another one every time (default: -1)",
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
       add_text(s.stops, flag, value);
     },
     [](const Settings& s) { return show_texts(s.stops); },
     [](Settings& s) { s.stops.clear(); }},
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

void add_text(std::vector<std::string>& texts, std::string_view flag, const std::string& value) {
  if (value.empty()) {
    throw UserError("{} '': the text is empty", flag);
  }
  check_utf8(value, std::string(flag));
  texts.push_back(unescape(value));
}

std::string show_texts(const std::vector<std::string>& texts) {
  std::vector<std::string> shown;
  std::transform(texts.begin(), texts.end(), std::back_inserter(shown), quoted);
  return shown.empty() ? "none" : fmt::format("{}", fmt::join(shown, " "));
}

std::span<const Setting> generation_settings() {
  static const auto all = [] {
    std::vector<Setting> rows(std::begin(kEveryday), std::end(kEveryday));
    const auto more = sampling_settings();
    rows.insert(rows.end(), more.begin(), more.end());
    return rows;
  }();
  return all;
}

const Setting* find_setting(std::string_view name) {
  std::string wanted = plain_name(name);
  for (const Setting& setting : generation_settings()) {
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
          "the model's generation config: {} is {}, which is not usable; the default is used",
          key,
          boost::json::serialize(*value)));
      return std::nullopt;
    }
    return result;
  };
  const auto temperature = number("temperature", 0, 1e9);
  const auto top_k = number("top_k", 0, static_cast<double>(kIntMax));
  const auto top_p = number("top_p", 0, 1);
  const auto min_p = number("min_p", 0, 1);
  const boost::json::value* value = config.if_contains("do_sample");
  const std::optional<bool> sample =
      value != nullptr && value->is_bool() ? std::optional(value->get_bool()) : std::nullopt;
  // A model with a recipe of its own gets that recipe: what it leaves out is as transformers has
  // it, and not as we have it for models that say nothing.
  if (sample.value_or(false) || temperature || top_k || top_p || min_p) {
    sampling.temperature = static_cast<float>(temperature.value_or(1));
    sampling.top_k = static_cast<int>(top_k.value_or(50));
    sampling.top_p = static_cast<float>(top_p.value_or(1));
    sampling.min_p = static_cast<float>(min_p.value_or(0));
  }
  if (auto penalty = number("repetition_penalty", 1e-6, 1e9)) {
    sampling.repetition_penalty = static_cast<float>(*penalty);
  }
  if (sample == false) {
    sampling.temperature = 0;
  }
  return lines;
}

}  // namespace quince::cli
