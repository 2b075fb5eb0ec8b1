// How an answer is generated, as the user sets it: the same names serve as flags of `quince run`
// and in the chat's /set. Values a user does not give come from the model's generation_config.json,
// and after that from SamplingParams.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "engine/sampling_params.h"

namespace quince::cli {

struct GenerationSettings {
  SamplingParams sampling;             // but for what becomes tokens only once the model is known:
  std::vector<std::string> stops;      // texts that end the answer; not part of it
  std::vector<std::string> bad_words;  // texts that never come
  std::vector<std::string> dry_breakers = {"\n", ":", "\"", "*"};  // as in llama.cpp
  bool own_dry_breakers = false;                                   // the user's, not these
};

struct Setting {
  std::string_view name;   // "temp"
  std::string_view flags;  // "--temp,--temperature"
  std::string_view label;  // "T"
  std::string_view help;
  // flag is what errors call it. Throws UserError.
  void (*set)(GenerationSettings& settings, std::string_view flag, const std::string& value);
  std::string (*show)(const GenerationSettings& settings);
  // Of a list, which grows with every value: empties it. Null: no list.
  void (*clear)(GenerationSettings& settings) = nullptr;
  bool everyday = true;  // shown first in the help
};

std::span<const Setting> generation_settings();

// By name or by any flag spelling, with or without dashes; "_" is as good as "-". Null when
// unknown.
const Setting* find_setting(std::string_view name);

// Takes over temperature, top_k, top_p, min_p, repetition_penalty and do_sample (false: greedy). A
// configuration that speaks of sampling replaces the defaults of all four.
// Values of a wrong type or out of range are left out and returned as lines to show.
std::vector<std::string> apply_generation_config(
    const boost::json::object& config, SamplingParams& sampling);

}  // namespace quince::cli
