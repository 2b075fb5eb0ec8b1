#include <algorithm>
#include <limits>

#include <fmt/ranges.h>

#include "base/error.h"
#include "cli/setting_values.h"

namespace quince::cli {

namespace {

using Settings = GenerationSettings;

// "15043+1": the sign parts id and bias.
void set_logit_bias(Settings& s, std::string_view flag, const std::string& value) {
  const size_t sign = value.find_first_of("+-", 1);
  const std::string called = fmt::format("{} {}:", flag, value);
  if (value.empty() || sign == std::string::npos) {
    throw UserError(
        "{} '{}': want a token's id, a sign and a number, as in 15043-2.5", flag, value);
  }
  const int64_t id =
      parse_integer(called, value.substr(0, sign), 0, std::numeric_limits<int>::max());
  const std::string number = value.substr(sign);
  const double bias = number == "-inf" ? -std::numeric_limits<double>::infinity()
                                       : parse_real(called, number, -1e9, 1e9);
  s.sampling.logit_bias[static_cast<int32_t>(id)] = static_cast<float>(bias);
}

constexpr Setting kRows[] = {
    {"presence-penalty",
     "--presence-penalty",
     "R",
     "Lowers the logit of tokens that the answer has already; 0: off (default: 0)",
     set_number<&SamplingParams::presence_penalty>,
     show_number<&SamplingParams::presence_penalty, 0>,
     nullptr,
     false},
    {"frequency-penalty",
     "--frequency-penalty",
     "R",
     "The same for every time that they are there; 0: off (default: 0)",
     set_number<&SamplingParams::frequency_penalty>,
     show_number<&SamplingParams::frequency_penalty, 0>,
     nullptr,
     false},
    {"typical-p",
     "--typical-p,--typical",
     "P",
     "Only tokens about as surprising as expected, which together reach probability P; 1: off "
     "(default: 1)",
     set_number<&SamplingParams::typical_p>,
     show_number<&SamplingParams::typical_p, 1>,
     nullptr,
     false},
    {"top-nsigma",
     "--top-nsigma,--top-n-sigma",
     "N",
     "Only tokens whose logit is at most N standard deviations below the highest; -1: off "
     "(default: -1)",
     set_number<&SamplingParams::top_n_sigma>,
     show_number<&SamplingParams::top_n_sigma, -1>,
     nullptr,
     false},
    {"xtc-probability",
     "--xtc-probability",
     "P",
     "Chance in each step that all but the least likely of the tokens above --xtc-threshold are "
     "left out; 0: off (default: 0)",
     set_number<&SamplingParams::xtc_probability>,
     show_number<&SamplingParams::xtc_probability, 0>,
     nullptr,
     false},
    {"xtc-threshold",
     "--xtc-threshold",
     "P",
     "Probability that those tokens have at least (default: 0.1)",
     set_number<&SamplingParams::xtc_threshold>,
     show_number<&SamplingParams::xtc_threshold, kNeverOff>,
     nullptr,
     false},
    {"min-keep",
     "--min-keep,--min-tokens-to-keep",
     "N",
     "Tokens that --top-p, --min-p, --typical-p and XTC leave at least (default: 0)",
     set_number<&SamplingParams::min_keep>,
     show_number<&SamplingParams::min_keep, kNeverOff>,
     nullptr,
     false},
    {"dynatemp-range",
     "--dynatemp-range",
     "T",
     "Lets the temperature go up and down by T, with how sure the model is; 0: off (default: 0)",
     set_number<&SamplingParams::dynatemp_range>,
     show_number<&SamplingParams::dynatemp_range, 0>,
     nullptr,
     false},
    {"dynatemp-exp",
     "--dynatemp-exp,--dynatemp-exponent",
     "X",
     "How steeply it does so (default: 1)",
     set_number<&SamplingParams::dynatemp_exponent>,
     show_number<&SamplingParams::dynatemp_exponent, kNeverOff>,
     nullptr,
     false},
    {"mirostat",
     "--mirostat",
     "N",
     "Keeps the surprise of the answer at --mirostat-ent, in place of all that leaves tokens out; "
     "1 or 2: its version, 0: off (default: 0)",
     set_number<&SamplingParams::mirostat>,
     show_number<&SamplingParams::mirostat, 0>,
     nullptr,
     false},
    {"mirostat-ent",
     "--mirostat-ent,--mirostat-tau",
     "BITS",
     "The surprise that it aims at (default: 5)",
     set_number<&SamplingParams::mirostat_tau>,
     show_number<&SamplingParams::mirostat_tau, kNeverOff>,
     nullptr,
     false},
    {"mirostat-lr",
     "--mirostat-lr,--mirostat-eta",
     "R",
     "How fast it learns (default: 0.1)",
     set_number<&SamplingParams::mirostat_eta>,
     show_number<&SamplingParams::mirostat_eta, kNeverOff>,
     nullptr,
     false},
    {"dry-multiplier",
     "--dry-multiplier",
     "R",
     "DRY: punishes tokens that go on with a repetition; 0: off (default: 0)",
     set_number<&SamplingParams::dry_multiplier>,
     show_number<&SamplingParams::dry_multiplier, 0>,
     nullptr,
     false},
    {"dry-base",
     "--dry-base",
     "R",
     "DRY: how the punishment grows with each token repeated (default: 1.75)",
     set_number<&SamplingParams::dry_base>,
     show_number<&SamplingParams::dry_base, kNeverOff>,
     nullptr,
     false},
    {"dry-allowed-length",
     "--dry-allowed-length",
     "N",
     "DRY: so many tokens may be repeated freely (default: 2)",
     set_number<&SamplingParams::dry_allowed_length>,
     show_number<&SamplingParams::dry_allowed_length, kNeverOff>,
     nullptr,
     false},
    {"dry-penalty-last-n",
     "--dry-penalty-last-n",
     "N",
     "DRY: tokens of prompt and answer it looks back at; -1: all, 0: off (default: -1)",
     set_number<&SamplingParams::dry_penalty_last_n>,
     show_number<&SamplingParams::dry_penalty_last_n, 0>,
     nullptr,
     false},
    {"dry-breakers",
     "--dry-sequence-breaker,--dry-breakers",
     "TEXT",
     "DRY: a text that ends a repetition, instead of newline, colon, quote and star; none: nothing "
     "does; may be given several times",
     [](Settings& s, std::string_view flag, const std::string& value) {
       if (!s.own_dry_breakers || value == "none") {
         s.dry_breakers.clear();
       }
       s.own_dry_breakers = true;
       if (value != "none") {
         add_text(s.dry_breakers, flag, value);
       }
     },
     [](const Settings& s) { return show_texts(s.dry_breakers); },
     [](Settings& s) { s.dry_breakers.clear(), s.own_dry_breakers = true; },
     false},
    {"logit-bias",
     "-l,--logit-bias",
     "ID+BIAS",
     "Adds to the logit of a token, as in 15043+1 or 15043-2.5; 15043-inf: never; may be given "
     "several times",
     set_logit_bias,
     [](const Settings& s) {
       std::vector<std::string> biases;
       for (const auto& [token, bias] : s.sampling.logit_bias) {
         biases.push_back(fmt::format("{}{:+}", token, bias));
       }
       return biases.empty() ? std::string("none") : fmt::format("{}", fmt::join(biases, " "));
     },
     [](Settings& s) { s.sampling.logit_bias.clear(); },
     false},
    {"bad-words",
     "--bad-words",
     "TEXT",
     "A text whose tokens, as the tokenizer writes it, must not come; may be given several times",
     [](Settings& s, std::string_view flag, const std::string& value) {
       add_text(s.bad_words, flag, value);
     },
     [](const Settings& s) { return show_texts(s.bad_words); },
     [](Settings& s) { s.bad_words.clear(); },
     false},
    {"min-tokens",
     "--min-tokens",
     "N",
     "Nothing ends the answer before it has N tokens, but for --stop (default: 0)",
     set_number<&SamplingParams::min_tokens>,
     show_number<&SamplingParams::min_tokens, kNeverOff>,
     nullptr,
     false},
    {"samplers",
     "--samplers",
     "STEPS",
     "The steps that run, in their order, separated by ; (default: penalties;dry;top_n_sigma;top_k;"
     "typical_p;top_p;min_p;xtc;temperature)",
     [](Settings& s, std::string_view flag, const std::string& value) {
       s.sampling.samplers = parse_samplers(value, flag);
     },
     [](const Settings& s) {
       std::vector<std::string_view> names;
       for (const SamplerStep step : s.sampling.samplers) {
         names.push_back(name(step));
       }
       return names.empty() ? std::string("none") : fmt::format("{}", fmt::join(names, ";"));
     },
     nullptr,
     false},
};

}  // namespace

std::span<const Setting> sampling_settings() {
  return kRows;
}

}  // namespace quince::cli
