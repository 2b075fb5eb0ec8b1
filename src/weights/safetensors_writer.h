// Writes a model directory: safetensors shards, their index and further files. Tensors are declared
// first, so all headers and offsets are known, and then written in any order and in pieces of any
// size: memory stays as small as the pieces.
//
// The directory appears whole or not at all: everything goes to a hidden folder beside it, which
// commit() renames and which the destructor removes when commit() was not reached.
// One thread; write() may be called from several at once for different tensors or ranges.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "weights/tensor.h"
#include "weights/working_folder.h"

namespace quince {

struct SafetensorsWriterOptions {
  uint64_t max_shard_bytes = 5ull << 30;  // a larger single tensor gets a shard of its own
  boost::json::object metadata = {{"format", "mlx"}};  // __metadata__ of every shard; strings only
  uint64_t total_parameters = 0;                       // for the index; 0: left out
};

class SafetensorsWriter {
 public:
  // Throws UserError when directory exists and is not empty, or cannot be made.
  SafetensorsWriter(std::filesystem::path directory, SafetensorsWriterOptions options = {});
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // All tensors before start(). type must be one that safetensors has (no GGML blocks).
  void declare(std::string_view name, TensorType type, std::vector<int64_t> shape);

  // Lays the tensors out in shards, in the order of declaration, and reserves the disk space.
  // Throws UserError when the disk has too little.
  void start();

  // Bytes [offset, offset + bytes.size()) of a tensor. Every byte must be written once before
  // commit().
  void write(std::string_view name, std::span<const std::byte> bytes, uint64_t offset = 0);

  // A further file of the directory: config.json, tokenizer.json, ...
  void add_file(std::string_view name, std::string_view text);
  void copy_file(const std::filesystem::path& from, std::string_view name);

  // Checks that every tensor is complete, writes the index, flushes to disk, renames.
  void commit();

  const std::filesystem::path& directory() const {
    return directory_;
  }
  int shards() const;
  uint64_t total_bytes() const;  // of all tensors declared

 private:
  struct Shard;
  struct Tensor;
  void lay_out();
  void write_index();

  std::filesystem::path directory_;
  std::optional<WorkingFolder> working_;
  SafetensorsWriterOptions options_;
  std::vector<std::unique_ptr<Tensor>> tensors_;
  std::map<std::string, Tensor*, std::less<>> by_name_;
  std::vector<std::unique_ptr<Shard>> shards_;
  bool started_ = false;
  bool committed_ = false;
};

}  // namespace quince
