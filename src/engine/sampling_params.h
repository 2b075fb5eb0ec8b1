// How the next token is chosen. Neutral values cost nothing. Plain data; what a parameter does, and
// where its formula comes from, is told in engine/sampling/, the order of the steps in
// engine/sampling/chain.h.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "constraint/constraint_spec.h"

namespace quince {

// The steps whose order a request may choose.
enum class SamplerStep : uint8_t {
  penalties,
  dry,
  top_n_sigma,
  top_k,
  typical_p,
  top_p,
  min_p,
  xtc,
  temperature,
};

struct SamplingParams {
  // Which tokens stay in the choice.
  float temperature = 0.8f;        // 0: greedy
  float dynatemp_range = 0.0f;     // temperature -+ this, by entropy; 0: off
  float dynatemp_exponent = 1.0f;  // how entropy maps to that range
  int top_k = 40;                  // 0: off
  float top_p = 0.95f;             // 1: off
  float min_p = 0.05f;             // 0: off
  float typical_p = 1.0f;          // 1: off
  float top_n_sigma = -1.0f;       // 0 and below: off
  float xtc_probability = 0.0f;    // that a step removes its likeliest tokens; 0: off
  float xtc_threshold = 0.1f;      // above 0.5: off
  int min_keep = 0;                // tokens that top_p, min_p, typical_p and xtc leave at least
  int mirostat = 0;                // 1 or 2: its version, instead of all steps that remove tokens
  float mirostat_tau = 5.0f;       // target surprise in bits
  float mirostat_eta = 0.1f;       // learning rate
  // The steps that run, in this order; those with neutral values cost nothing.
  std::vector<SamplerStep> samplers = {
      SamplerStep::penalties,
      SamplerStep::dry,
      SamplerStep::top_n_sigma,
      SamplerStep::top_k,
      SamplerStep::typical_p,
      SamplerStep::top_p,
      SamplerStep::min_p,
      SamplerStep::xtc,
      SamplerStep::temperature};
  std::optional<uint64_t> seed;  // absent: random

  // Against repetition.
  float repetition_penalty = 1.0f;  // of tokens in the last repeat_last_n, prompt included; 1: off
  int repeat_last_n = 64;           // -1: all
  float presence_penalty = 0.0f;    // of tokens already generated; 0: off
  float frequency_penalty = 0.0f;   // the same for each time
  float dry_multiplier = 0.0f;      // 0: off
  float dry_base = 1.75f;
  int dry_allowed_length = 2;   // tokens that may repeat freely
  int dry_penalty_last_n = -1;  // tokens looked back at, prompt included; -1: all
  // Token sequences that end a repetition (see tokenizer/spellings.h).
  std::vector<std::vector<int32_t>> dry_sequence_breakers;

  // What may not come, or must not be missed.
  std::map<int32_t, float> logit_bias;          // added to the logit; -infinity: never
  std::vector<std::vector<int32_t>> bad_words;  // token sequences that are never completed
  std::vector<int32_t> allowed_token_ids;       // empty: all
  std::vector<int32_t> end_tokens;   // the model's own: end generation; not part of the output
  std::vector<int32_t> stop_tokens;  // the request's own, likewise
  bool ignore_eos = false;           // end_tokens are never chosen
  int min_tokens = 0;                // until so many are generated, nothing that ends it is chosen
  std::optional<ConstraintSpec> constraint;  // the form the answer is held to

  int max_tokens = -1;  // -1: until an end token comes or the context is full

  bool logprobs = false;  // report each chosen token's log probability
  int top_logprobs = 0;   // and of this many likeliest tokens; above 0 implies logprobs

  // The same for every token of the prompt but the first: so many likeliest beside it; -1: off.
  // Then nothing of the prompt is taken from a cache, and a step computes logits for all of its
  // tokens.
  int prompt_logprobs = -1;

  // Throws UserError naming the field, its value and the allowed range. vocabulary: ids from there
  // on are unknown tokens; 0: not checked.
  void check(int vocabulary = 0) const;

  bool wants_logprobs() const {
    return logprobs || top_logprobs > 0;
  }
  bool ends(int32_t token) const;
};

// A parameter that is a number. One table says for every door what it is called and what it may be.
struct NumberParam {
  std::string_view name;  // "typical_p": of the field, and in requests
  std::variant<float SamplingParams::*, int SamplingParams::*> field;
  double low;
  double high;
  std::string_view range;  // in words: "a number from 0 to 1"

  double get(const SamplingParams& params) const;
  bool accepts(double value) const;
  // called: what the message calls the parameter ("--typical-p"). Throws UserError.
  void set(SamplingParams& params, double value, std::string_view called) const;
  bool whole() const {  // no fractions
    return std::holds_alternative<int SamplingParams::*>(field);
  }
};

std::span<const NumberParam> number_params();
const NumberParam* find_number_param(std::string_view name);  // null: there is none

std::string_view name(SamplerStep step);  // "top_k"
// "top_k;top-p;temp": names as in the enum or as llama.cpp spells them ("typ_p", "nucleus"),
// separated by ; or ,. called as above. Throws UserError: unknown name, a step given twice.
std::vector<SamplerStep> parse_samplers(std::string_view text, std::string_view called);

}  // namespace quince
