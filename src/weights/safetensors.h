// Reads the headers of safetensors files. Format: u64 little-endian header size, a JSON object
// {"name": {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__": {string: string}},
// then the data, to which the offsets are relative and which the tensors cover without hole or
// overlap. Everything is checked here, before a byte of data is looked at: errors are UserErrors
// that name file and tensor. https://huggingface.co/docs/safetensors
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "weights/tensor.h"

namespace quince {

struct SafetensorsContent {
  std::vector<TensorView> tensors;  // in the order of their data
  boost::json::object metadata;     // __metadata__ or {}
};

SafetensorsContent open_safetensors(const std::filesystem::path& path);

// The parser itself. file (may be null) is put into the views; source is named in errors.
SafetensorsContent parse_safetensors(
    std::span<const std::byte> bytes,
    std::string_view source,
    std::shared_ptr<const MappedFile> file);

// The weights of a Hugging Face or MLX directory: the shards that model.safetensors.index.json
// lists, each with the tensors that the index gives it; else (no index, or one whose shards are
// gone) model.safetensors; else all model*.safetensors. Every shard name is checked to stay inside
// the directory before any file is opened (symbolic links are followed: the hub cache is made of
// them).
SafetensorsContent open_safetensors_directory(const std::filesystem::path& directory);

// weight_map of an index text: tensor name -> shard file name, validated.
std::vector<std::pair<std::string, std::string>> parse_safetensors_index(
    std::string_view text, std::string_view source);

// Safetensors' spelling ("BF16") of a type, and back. Nothing for types it does not know.
std::optional<std::string_view> safetensors_dtype(TensorType type);
std::optional<TensorType> safetensors_type(std::string_view dtype);

}  // namespace quince
