// What a model needs in memory: weights, keys and values for a context, and room to compute in.
// Plain arithmetic on shapes; nothing is loaded.
//
// Keys and values of one layer and one token: 2 * kv_heads * head_dim elements. A layer with a
// sliding window keeps the window's tokens only, however long the context is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "cache/cache.h"
#include "nn/decoder_spec.h"
#include "weights/tensor.h"

namespace quince::cli {

// How keys and values are stored. The quantized ones as MLX does it: groups of 64 with a 16-bit
// scale and bias.
std::optional<KvFormat> parse_kv_format(std::string_view text);  // also q8_0, q4_0
const char* name(KvFormat type);
double bits_per_element(KvFormat type);  // 32, 16, 8.5, 4.5

struct KvLayer {
  int64_t elements = 0;  // of keys and values of one token
  int64_t window = 0;    // tokens kept at most; 0: all
};

std::vector<KvLayer> kv_layers(const DecoderSpec& spec);
// From config.json alone, for architectures that Quince does not run: num_hidden_layers,
// num_key_value_heads, head_dim (or kv_lora_rank + qk_rope_head_dim), layer_types. Empty when the
// keys are not there.
std::vector<KvLayer> kv_layers(const boost::json::object& config);

uint64_t kv_bytes(const std::vector<KvLayer>& layers, int64_t context, KvFormat type);

// Activations of one step of `rows` prompt tokens, in f32, and one row of logits.
uint64_t workspace_bytes(const boost::json::object& config, int64_t rows);

// What a tensor takes in memory once loaded with the native kernels: as in the file, but types
// without a native layout are widened.
uint64_t held_bytes(const TensorView& tensor);

}  // namespace quince::cli
