// From a config's rotary settings to explicit frequencies. Sources: Su et al. 2021 (RoPE); linear
// position interpolation, Chen et al. 2023; "dynamic" NTK scaling as in transformers; YaRN, Peng et
// al. 2023; llama3 as published with Llama 3.1.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "nn/decoder_spec.h"

namespace quince {

struct RopeConfig {
  int dims = 0;            // rotated dimensions of a head, even
  double theta = 10000.0;  // base; "rope_theta" inside `scaling` goes before it
  int max_positions = 0;   // config's max_position_embeddings
  // config.json's "rope_scaling" or, since transformers 5, "rope_parameters"; null: plain. The kind
  // is under "rope_type" or, in older files, "type".
  const boost::json::object* scaling = nullptr;
  std::string source;  // named in errors
};

// Kinds: default, linear, dynamic, llama3, yarn; and "rope_freqs" with "factors", the divisors of
// the frequencies that a GGUF file may hold (weights/gguf_config.h). Any other is a UserError, and
// so is a missing or senseless parameter.
RopeSpec make_rope(const RopeConfig& config);

// base^(-2i/dims), i < dims / 2
std::vector<float> plain_inv_freq(double base, int dims);

// Frequencies of a "dynamic" rope for a sequence of `length` tokens; those of any other rope as
// they are.
std::vector<float> inv_freq_at(const RopeSpec& rope, int64_t length);

}  // namespace quince
