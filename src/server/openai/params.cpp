#include "server/openai/params.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include <fmt/ranges.h>

#include "base/error.h"
#include "server/errors.h"
#include "server/openai/answer_form.h"
#include "tokenizer/spellings.h"

namespace quince::server {

namespace json = boost::json;

namespace {

constexpr int kMostAnswers = 128;
constexpr int kMostStops = 64;
constexpr double kMostBias = 100;

constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
    {"repeat_penalty", "repetition_penalty"},
    {"penalty_repeat", "repetition_penalty"},
    {"typ_p", "typical_p"},
    {"top_nsigma", "top_n_sigma"},
};

// Read by routes themselves, in their own forms.
constexpr std::array kElsewhere = {
    std::string_view("max_tokens"),
    std::string_view("top_logprobs"),
    std::string_view("prompt_logprobs")};

void set_number(
    Fields& fields, std::string_view name, const NumberParam& row, SamplingParams& params) {
  const auto value = fields.number(name, row.range);
  if (!value) {
    return;
  }
  const std::string called = fields.called(name);
  // vLLM's way to switch it off.
  const double number = row.name == "top_k" && *value == -1 ? 0 : *value;
  if (!row.accepts(number)) {
    throw bad_field(
        called, "{} is {}, want {}, at most {:.9g}", called, *value, row.range, row.high);
  }
  row.set(params, number, called);
}

void parse_numbers(Fields& fields, SamplingParams& params) {
  for (const NumberParam& row : number_params()) {
    if (std::find(kElsewhere.begin(), kElsewhere.end(), row.name) == kElsewhere.end()) {
      set_number(fields, row.name, row, params);
    }
  }
  for (const auto& [alias, name] : kAliases) {
    set_number(fields, alias, *find_number_param(name), params);
  }
}

void parse_limits(Fields& fields, SamplingParams& params) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const char* name : {"n_predict", "max_tokens", "max_completion_tokens"}) {
    const auto limit = fields.integer(name, -1, kMost, "-1 (no limit) or a whole number from 0 up");
    if (limit) {
      params.max_tokens =
          static_cast<int>(std::min<int64_t>(*limit, std::numeric_limits<int>::max()));
    }
  }
  const auto seed = fields.integer(
      "seed", std::numeric_limits<int64_t>::min(), kMost, "a whole number (-1: any)");
  if (seed && *seed != -1) {
    params.seed = static_cast<uint64_t>(*seed);
  }
}

Token token_id(const json::value& value, const std::string& name, const ServedModel& model) {
  const int vocabulary = model.engine->info().vocab_size;
  if (!value.is_int64() || value.get_int64() < 0 || value.get_int64() >= vocabulary) {
    throw bad_field(
        name, "{} holds {}, want token ids from 0 to {}", name, shown(value), vocabulary - 1);
  }
  return static_cast<Token>(value.get_int64());
}

std::vector<Token> token_ids(Fields& fields, const char* name, const ServedModel& model) {
  std::vector<Token> ids;
  if (const json::array* list = fields.array(name)) {
    for (const json::value& value : *list) {
      ids.push_back(token_id(value, fields.called(name), model));
    }
  }
  return ids;
}

float bias(const json::value& value) {
  if (value.is_bool() && !value.get_bool()) {
    return -std::numeric_limits<float>::infinity();  // llama.cpp: never
  }
  const double number = value.is_number() ? value.to_number<double>() : kMostBias + 1;
  if (!(number >= -kMostBias && number <= kMostBias)) {
    throw bad_field(
        "logit_bias", "logit_bias holds {}, want numbers from -100 to 100", shown(value));
  }
  return static_cast<float>(number);
}

// {"15": 2} of OpenAI; [[15, 2], [" text", false]] of llama.cpp.
void parse_bias(Fields& fields, const ServedModel& model, SamplingParams& params) {
  const json::value* value = fields.find("logit_bias");
  if (value == nullptr) {
    return;
  }
  if (const json::object* object = value->if_object()) {
    for (const auto& [key, number] : *object) {
      int64_t id = -1;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      if (error != std::errc() || end != key.data() + key.size()) {
        throw bad_field(
            "logit_bias", "logit_bias holds '{}', want token ids", std::string_view(key));
      }
      params.logit_bias[token_id(id, "logit_bias", model)] = bias(number);
    }
    return;
  }
  if (!value->is_array()) {
    throw bad_field("logit_bias", "logit_bias is {}, want an object", shown(*value));
  }
  for (const json::value& item : value->get_array()) {
    const json::array* pair = item.if_array();
    if (pair == nullptr || pair->size() != 2) {
      throw bad_field("logit_bias", "logit_bias holds {}, want [token, bias]", shown(item));
    }
    if (const json::string* text = pair->at(0).if_string()) {
      for (const Token id : model.text.tokenizer.encode(*text)) {
        params.logit_bias[id] = bias(pair->at(1));
      }
    } else {
      params.logit_bias[token_id(pair->at(0), "logit_bias", model)] = bias(pair->at(1));
    }
  }
}

void parse_stops(Fields& fields, const ServedModel& model, GenerationParams& params) {
  params.stops = fields.texts("stop").value_or(std::vector<std::string>());
  if (params.stops.size() > kMostStops) {
    throw bad_field(
        "stop", "stop holds {} texts, want at most {}", params.stops.size(), kMostStops);
  }
  std::erase(params.stops, "");
  params.sampling.stop_tokens = token_ids(fields, "stop_token_ids", model);
  params.include_stop = fields.boolean("include_stop_str_in_output").value_or(false);
  params.skip_special = fields.boolean("skip_special_tokens").value_or(true);
}

void parse_words(Fields& fields, const ServedModel& model, SamplingParams& params) {
  const Tokenizer& tokenizer = model.text.tokenizer;
  if (const auto words = fields.texts("bad_words")) {
    if (std::find(words->begin(), words->end(), "") != words->end()) {
      throw bad_field("bad_words", "bad_words holds an empty text");
    }
    params.bad_words = word_sequences(tokenizer, *words);
  }
  params.allowed_token_ids = token_ids(fields, "allowed_token_ids", model);
  params.ignore_eos = fields.boolean("ignore_eos").value_or(params.ignore_eos);
  const auto breakers = fields.texts("dry_sequence_breakers");
  if (params.dry_multiplier > 0) {
    params.dry_sequence_breakers =
        overlapping_sequences(tokenizer, breakers.value_or(model.dry_breakers));
  }
  if (const auto steps = fields.texts("samplers")) {
    params.samplers = parse_samplers(fmt::format("{}", fmt::join(*steps, ";")), "samplers");
  }
}

void parse_answers(Fields& fields, GenerationParams& params) {
  const std::string wanted = "a whole number from 1 to " + std::to_string(kMostAnswers);
  params.n = static_cast<int>(fields.integer("n", 1, kMostAnswers, wanted).value_or(1));
  params.best_of =
      static_cast<int>(fields.integer("best_of", 1, kMostAnswers, wanted).value_or(params.n));
  if (params.best_of < params.n) {
    throw bad_field("best_of", "best_of is {}, want at least n, {}", params.best_of, params.n);
  }
  params.stream = fields.boolean("stream").value_or(false);
  if (const json::object* object = fields.object("stream_options")) {
    Fields options(*object, "stream_options.");
    params.include_usage = options.boolean("include_usage").value_or(false) && params.stream;
  }
  if (params.stream && params.best_of > params.n) {
    throw bad_field("best_of", "best_of is {}: a stream cannot take answers back", params.best_of);
  }
}

void parse_options(Fields& fields, const ServedModel& model, GenerationParams& params) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  params.options.cache_prompt = fields.boolean("cache_prompt").value_or(true);
  params.options.priority =
      static_cast<int>(-fields.integer("priority", -kMost, kMost, "a whole number").value_or(0));
  const auto slot = fields.integer(
      "id_slot",
      -1,
      model.parallel - 1,
      fmt::format("-1 (any) or a slot from 0 to {}", model.parallel - 1));
  if (slot && *slot >= 0) {
    params.slot = static_cast<int>(*slot);
  }
  const auto limit = fields.integer("t_max_predict_ms", -1, kMost, "-1 (no limit) or milliseconds");
  if (limit && *limit > 0) {
    params.options.deadline = static_cast<double>(*limit) / 1000;
  }
  params.truncate_prompt = static_cast<int>(
      fields.integer("truncate_prompt_tokens", -1, kMost, "-1 (what fits) or tokens to keep")
          .value_or(0));
  if (params.truncate_prompt == -1) {
    params.truncate_prompt = std::max(1, model.engine->context_length() - 1);
  }
  const auto prompt_logprobs =
      fields.integer("prompt_logprobs", -1, 1000, "-1 (off) or a whole number from 0 to 1000");
  params.sampling.prompt_logprobs = static_cast<int>(prompt_logprobs.value_or(-1));
  if (params.stream && params.sampling.prompt_logprobs >= 0) {
    throw bad_field("prompt_logprobs", "prompt_logprobs: a stream does not have them");
  }
}

// They say who asks, and how a service may keep and bill what was asked. They mean nothing here,
// but are what OpenAI says they are.
void know_the_rest(Fields& fields) {
  for (const char* name : {"user", "service_tier", "safety_identifier", "prompt_cache_key"}) {
    fields.text(name);
  }
  fields.boolean("store");
  if (const json::object* metadata = fields.object("metadata")) {
    Fields inner(*metadata, "metadata.");
    for (const auto& entry : *metadata) {
      inner.text(std::string_view(entry.key()));
    }
  }
  fields.know("model");
}

}  // namespace

std::span<const std::pair<std::string_view, std::string_view>> number_aliases() {
  return kAliases;
}

void refuse_best_of(const GenerationParams& params) {
  if (params.best_of > params.n) {
    throw bad_field("best_of", "best_of: only /v1/completions has it");
  }
}

GenerationParams parse_generation(Fields& fields, const ServedModel& model) {
  GenerationParams params;
  params.sampling = model.sampling;
  parse_numbers(fields, params.sampling);
  parse_limits(fields, params.sampling);
  parse_bias(fields, model, params.sampling);
  parse_stops(fields, model, params);
  parse_words(fields, model, params.sampling);
  parse_answers(fields, params);
  parse_options(fields, model, params);
  params.sampling.constraint = parse_answer_form(fields, params.form_field);
  know_the_rest(fields);
  return params;
}

}  // namespace quince::server
