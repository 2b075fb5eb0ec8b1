#include "engine/sampling_params.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/closest.h"
#include "base/error.h"

namespace quince {

namespace {

using P = SamplingParams;
constexpr double kHuge = 1e9;
constexpr double kMost = std::numeric_limits<int>::max();
constexpr double kMostLogprobs = 1000;

constexpr NumberParam kNumbers[] = {
    {"temperature", &P::temperature, 0, kHuge, "a number from 0 (greedy) up"},
    {"dynatemp_range", &P::dynatemp_range, 0, kHuge, "a number from 0 (off) up"},
    {"dynatemp_exponent", &P::dynatemp_exponent, 0, kHuge, "a number from 0 up"},
    {"top_k", &P::top_k, 0, kMost, "0 (off) or a positive whole number"},
    {"top_p", &P::top_p, 0, 1, "a number from 0 to 1 (off)"},
    {"min_p", &P::min_p, 0, 1, "a number from 0 (off) to 1"},
    {"typical_p", &P::typical_p, 0, 1, "a number from 0 to 1 (off)"},
    {"top_n_sigma", &P::top_n_sigma, -kHuge, kHuge, "a number above 0, or -1 (off)"},
    {"xtc_probability", &P::xtc_probability, 0, 1, "a number from 0 (off) to 1"},
    {"xtc_threshold", &P::xtc_threshold, 0, 1, "a number from 0 to 1 (above 0.5: off)"},
    {"min_keep", &P::min_keep, 0, kMost, "a whole number from 0 up"},
    {"mirostat", &P::mirostat, 0, 2, "0 (off), 1 or 2"},
    {"mirostat_tau", &P::mirostat_tau, 0, kHuge, "a number from 0 up"},
    {"mirostat_eta", &P::mirostat_eta, 0, kHuge, "a number from 0 up"},
    {"repetition_penalty",
     &P::repetition_penalty,
     1e-6f,  // as the field has it
     kHuge,
     "a number from 0.000001 up (1: off)"},
    {"repeat_last_n", &P::repeat_last_n, -1, kMost, "-1 (all) or a whole number from 0 up"},
    {"presence_penalty", &P::presence_penalty, -100, 100, "a number from -100 to 100"},
    {"frequency_penalty", &P::frequency_penalty, -100, 100, "a number from -100 to 100"},
    {"dry_multiplier", &P::dry_multiplier, 0, kHuge, "a number from 0 (off) up"},
    {"dry_base", &P::dry_base, 1, kHuge, "a number from 1 up"},
    {"dry_allowed_length", &P::dry_allowed_length, 0, kMost, "a whole number from 0 up"},
    {"dry_penalty_last_n",
     &P::dry_penalty_last_n,
     -1,
     kMost,
     "-1 (all) or a whole number from 0 (off) up"},
    {"min_tokens", &P::min_tokens, 0, kMost, "a whole number from 0 up"},
    {"max_tokens", &P::max_tokens, -1, kMost, "-1 (no limit) or a whole number from 0 up"},
    {"top_logprobs", &P::top_logprobs, 0, kMostLogprobs, "a whole number from 0 to 1000"},
    {"prompt_logprobs",
     &P::prompt_logprobs,
     -1,
     kMostLogprobs,
     "-1 (off) or a whole number from 0 to 1000"},
};

struct StepName {
  std::string_view name;
  SamplerStep step;
};

// The first name of a step is its own.
constexpr StepName kStepNames[] = {
    {"penalties", SamplerStep::penalties},
    {"dry", SamplerStep::dry},
    {"top_n_sigma", SamplerStep::top_n_sigma},
    {"top_nsigma", SamplerStep::top_n_sigma},
    {"top_k", SamplerStep::top_k},
    {"topk", SamplerStep::top_k},
    {"typical_p", SamplerStep::typical_p},
    {"typ_p", SamplerStep::typical_p},
    {"typical", SamplerStep::typical_p},
    {"typ", SamplerStep::typical_p},
    {"top_p", SamplerStep::top_p},
    {"topp", SamplerStep::top_p},
    {"nucleus", SamplerStep::top_p},
    {"min_p", SamplerStep::min_p},
    {"minp", SamplerStep::min_p},
    {"xtc", SamplerStep::xtc},
    {"temperature", SamplerStep::temperature},
    {"temp", SamplerStep::temperature},
};

void check_ids(const char* name, const std::vector<int32_t>& ids, int vocabulary) {
  for (const int32_t id : ids) {
    if (vocabulary > 0 && (id < 0 || id >= vocabulary)) {
      throw UserError("{}: token {} is outside the model's vocabulary of {}", name, id, vocabulary);
    }
  }
}

void check_sequences(
    const char* name, const std::vector<std::vector<int32_t>>& sequences, int vocabulary) {
  for (const auto& sequence : sequences) {
    if (sequence.empty()) {
      throw UserError("{}: a sequence is empty, want at least one token in each", name);
    }
    check_ids(name, sequence, vocabulary);
  }
}

void add_step(std::vector<SamplerStep>& steps, SamplerStep step, std::string_view called) {
  if (std::find(steps.begin(), steps.end(), step) != steps.end()) {
    throw UserError("{}: {} is there twice, want each step once", called, name(step));
  }
  steps.push_back(step);
}

}  // namespace

double NumberParam::get(const SamplingParams& params) const {
  return std::visit([&](auto member) { return static_cast<double>(params.*member); }, field);
}

bool NumberParam::accepts(double value) const {
  return value >= low && value <= high && (!whole() || value == std::floor(value));  // NaN: no
}

void NumberParam::set(SamplingParams& params, double value, std::string_view called) const {
  if (!accepts(value)) {
    throw UserError("{} is {}, want {}, at most {:.9g}", called, value, range, high);
  }
  std::visit(
      [&](auto member) {
        params.*member = static_cast<std::decay_t<decltype(params.*member)>>(value);
      },
      field);
}

std::span<const NumberParam> number_params() {
  return kNumbers;
}

const NumberParam* find_number_param(std::string_view name) {
  const auto* const found = std::find_if(
      std::begin(kNumbers), std::end(kNumbers), [&](const auto& row) { return row.name == name; });
  return found == std::end(kNumbers) ? nullptr : found;
}

std::string_view name(SamplerStep step) {
  const auto* const found =
      std::find_if(std::begin(kStepNames), std::end(kStepNames), [&](const auto& row) {
        return row.step == step;
      });
  return found->name;
}

std::vector<SamplerStep> parse_samplers(std::string_view text, std::string_view called) {
  std::vector<SamplerStep> steps;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(";,"), text.size());
    std::string word(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    std::replace(word.begin(), word.end(), '-', '_');
    const auto* const found =
        std::find_if(std::begin(kStepNames), std::end(kStepNames), [&](const auto& row) {
          return row.name == word;
        });
    if (found == std::end(kStepNames)) {
      std::vector<std::string> names;
      std::string list;
      for (const StepName& row : kStepNames) {
        names.emplace_back(row.name);
        if (row.name == name(row.step)) {
          list += (list.empty() ? "" : ", ") + names.back();
        }
      }
      const auto near = closest(word, names);
      throw UserError(
          "{}: there is no step '{}'{}; the steps are {}",
          called,
          word,
          near ? " (did you mean " + *near + "?)" : "",
          list);
    }
    add_step(steps, found->step, called);
  }
  return steps;
}

bool SamplingParams::ends(int32_t token) const {
  const auto is_in = [&](const std::vector<int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  return is_in(stop_tokens) || (!ignore_eos && is_in(end_tokens));
}

void SamplingParams::check(int vocabulary) const {
  SamplingParams scratch;
  for (const NumberParam& row : kNumbers) {
    row.set(scratch, row.get(*this), row.name);
  }
  if (max_tokens >= 0 && min_tokens > max_tokens) {
    throw UserError("min_tokens is {}, want at most max_tokens, {}", min_tokens, max_tokens);
  }
  for (const auto& [token, bias] : logit_bias) {
    check_ids("logit_bias", {token}, vocabulary);
    if (!(bias <= 1e9f)) {  // also refuses NaN
      throw UserError("logit_bias of token {} is {}, want a number up to 1e9", token, bias);
    }
  }
  check_sequences("bad_words", bad_words, vocabulary);
  check_sequences("dry_sequence_breakers", dry_sequence_breakers, vocabulary);
  check_ids("allowed_token_ids", allowed_token_ids, vocabulary);
  std::vector<SamplerStep> steps;
  for (const SamplerStep step : samplers) {
    add_step(steps, step, "samplers");
  }
}

}  // namespace quince
