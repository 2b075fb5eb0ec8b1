// Reads the header of GGUF files, versions 2 and 3, little-endian: typed metadata and tensor infos.
// Every length, count, product and offset is checked against the file before use, so a hostile or
// cut-off file ends in a UserError that names it. Metadata values are views into the mapping;
// nothing is copied until asked for, so a vocabulary of any size opens at once.
// Format: ggml's docs/gguf.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "weights/tensor.h"

namespace quince {

// As numbered in the file.
enum class GgufType : uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};
std::string_view gguf_type_name(GgufType type);

// A metadata value inside the mapping, already checked to lie within it.
struct GgufValue {
  GgufType type = GgufType::u8;
  std::span<const std::byte> bytes;  // a scalar's or string's bytes; an array's elements
  GgufType element = GgufType::u8;   // arrays only
  uint64_t count = 0;                // arrays only

  // Nothing when the value is of another kind (or negative, for as_uint).
  std::optional<int64_t> as_int() const;   // any integer type, booleans
  std::optional<double> as_float() const;  // any number
  std::optional<bool> as_bool() const;     // booleans and integers
  std::optional<std::string_view> as_string() const;
  // Elements of an array of numbers or strings; empty for other kinds.
  std::vector<std::string_view> strings() const;
  std::vector<double> numbers() const;
  std::vector<int32_t> ints() const;
  std::vector<float> floats() const;

  // For display: arrays longer than max_array become {"type": ..., "length": ...}.
  boost::json::value to_json(size_t max_array = 64) const;
};

class GgufFile {
 public:
  static GgufFile open(const std::filesystem::path& path);
  // file may be null; source is named in errors.
  static GgufFile parse(
      std::span<const std::byte> bytes, std::string source, std::shared_ptr<const MappedFile> file);

  const std::string& source() const {
    return source_;
  }
  // The mapping that metadata and tensors are views into; null when parsed from memory.
  const std::shared_ptr<const MappedFile>& file() const {
    return file_;
  }
  uint32_t version() const {
    return version_;
  }
  uint32_t alignment() const {
    return alignment_;
  }
  const std::map<std::string_view, GgufValue>& metadata() const {
    return metadata_;
  }
  const std::vector<TensorView>& tensors() const {
    return tensors_;
  }
  std::vector<TensorView> take_tensors() {
    return std::move(tensors_);
  }

  const GgufValue* find(std::string_view key) const;
  // Typed look-ups. A missing key is nothing; a value of another type is a UserError.
  std::optional<int64_t> get_int(std::string_view key) const;
  std::optional<double> get_float(std::string_view key) const;
  std::optional<bool> get_bool(std::string_view key) const;
  std::optional<std::string_view> get_string(std::string_view key) const;

 private:
  std::string source_;
  std::shared_ptr<const MappedFile> file_;
  uint32_t version_ = 0;
  uint32_t alignment_ = 32;
  std::map<std::string_view, GgufValue> metadata_;
  std::vector<TensorView> tensors_;
};

// The file at path and, when it is one part of a split set, all its sisters in order: the first
// holds the metadata, each holds some tensors. Whichever part is named, all are opened; a missing
// or foreign part is a UserError.
std::vector<GgufFile> open_gguf_set(const std::filesystem::path& path);

// "x-00002-of-00003.gguf" -> {"x", 2, 3}.
struct GgufPartName {
  std::string stem;
  int part;  // from 1
  int count;
};
std::optional<GgufPartName> gguf_part_name(std::string_view file_name);

}  // namespace quince
