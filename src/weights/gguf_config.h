// GGUF metadata in the words of Hugging Face's config.json, and the names of the tensors with it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "weights/gguf.h"

namespace quince {

// Architectures whose GGUF files can be opened: "gemma3, llama, qwen2, qwen3".
std::string supported_gguf_architectures();

// config.json's form of the metadata of `file` (the first of its set). tensors: all of the set,
// under GGUF names; they tell the vocabulary size, tied embeddings and biases. Throws UserError for
// an unknown architecture, a missing or senseless key.
//
// Rope scaling: "linear" and "yarn" as in transformers. Llama 3's arrives as the tensor
// rope_freqs.weight of divisors of the frequencies; it becomes {"rope_type": "llama3", ...} when
// those are what the llama3 formula gives for one factor, and otherwise
//   {"rope_type": "rope_freqs", "factors": [head_dim / 2 numbers]}: inv_freq[i] /= factors[i].
boost::json::object gguf_hf_config(const GgufFile& file, const std::vector<TensorView>& tensors);

// Renames to Hugging Face's names and undoes what the converter did to the values: llama's q and k
// rows are un-permuted through row_order, a fused attn_qkv becomes its three parts, gemma's norms
// get add = -1. rope_freqs.weight, which is part of the config, is left out. Tensors of unknown
// name keep theirs.
std::vector<TensorView> gguf_hf_tensors(
    std::string_view architecture,
    const boost::json::object& config,
    std::vector<TensorView> tensors);

}  // namespace quince
