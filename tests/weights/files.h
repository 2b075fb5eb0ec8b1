// Things that the weight tests make files with.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"

namespace quince::test {

// A folder that goes away with the object.
class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "quince-test-XXXXXX").string();
    if (!::mkdtemp(name.data())) {
      throw std::runtime_error("mkdtemp failed");
    }
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const {
    return path_;
  }
  std::filesystem::path operator/(std::string_view name) const {
    return path_ / name;
  }
  std::filesystem::path write(std::string_view name, std::string_view bytes) const {
    const auto file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream out(file, std::ios::binary);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return file;
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// Sets an environment variable for the life of the object; value null unsets it.
class ScopedEnvironment {
 public:
  ScopedEnvironment(std::string name, const char* value) : name_(std::move(name)) {
    if (const char* old = std::getenv(name_.c_str())) {
      had_ = true;
      old_ = old;
    }
    set(value);
  }
  ~ScopedEnvironment() {
    set(had_ ? old_.c_str() : nullptr);
  }
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

 private:
  void set(const char* value) const {
    if (value) {
      ::setenv(name_.c_str(), value, 1);
    } else {
      ::unsetenv(name_.c_str());
    }
  }
  std::string name_;
  bool had_ = false;
  std::string old_;
};

template <typename T>
std::string raw(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

// Appends the parts of a GGUF file as told, without checking anything.
class GgufBytes {
 public:
  explicit GgufBytes(uint32_t version = 3) : version_(version) {}

  GgufBytes& key(std::string_view name, uint32_t type, std::string_view value) {
    keys_ += string(name) + raw(type) + std::string(value);
    ++key_count;
    return *this;
  }
  GgufBytes& key_string(std::string_view name, std::string_view value) {
    return key(name, 8, string(value));
  }
  GgufBytes& key_u32(std::string_view name, uint32_t value) {
    return key(name, 4, raw(value));
  }
  GgufBytes& key_u16(std::string_view name, uint16_t value) {
    return key(name, 2, raw(value));
  }
  GgufBytes& key_f32(std::string_view name, float value) {
    return key(name, 6, raw(value));
  }
  GgufBytes& key_bool(std::string_view name, bool value) {
    return key(name, 7, raw(static_cast<uint8_t>(value)));
  }
  GgufBytes& key_strings(std::string_view name, const std::vector<std::string>& values) {
    std::string bytes = raw<uint32_t>(8) + raw<uint64_t>(values.size());
    for (const auto& value : values) {
      bytes += string(value);
    }
    return key(name, 9, bytes);
  }
  template <typename T>
  GgufBytes& key_array(std::string_view name, uint32_t element, const std::vector<T>& values) {
    std::string bytes = raw(element) + raw<uint64_t>(values.size());
    for (const T value : values) {
      bytes += raw(value);
    }
    return key(name, 9, bytes);
  }

  // dims: innermost first, as in the file.
  GgufBytes& tensor_info(
      std::string_view name, const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
    infos_ += string(name) + raw(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) {
      infos_ += raw(dim);
    }
    infos_ += raw(type) + raw(offset);
    ++tensor_count;
    return *this;
  }
  // Info and data, placed at the next multiple of the alignment.
  GgufBytes& tensor(
      std::string_view name,
      const std::vector<uint64_t>& dims,
      uint32_t type,
      std::string_view bytes) {
    data_.resize((data_.size() + alignment - 1) / alignment * alignment, '\0');
    tensor_info(name, dims, type, data_.size());
    data_ += bytes;
    return *this;
  }
  GgufBytes& tensor_f32(
      std::string_view name, const std::vector<uint64_t>& dims, float value = 0.0f) {
    uint64_t count = 1;
    for (const uint64_t dim : dims) {
      count *= dim;
    }
    std::string bytes;
    for (uint64_t i = 0; i < count; ++i) {
      bytes += raw(value);
    }
    return tensor(name, dims, 0, bytes);
  }
  GgufBytes& raw_info(std::string_view bytes) {
    infos_ += bytes;
    ++tensor_count;
    return *this;
  }
  GgufBytes& data(std::string_view bytes) {
    data_ += bytes;
    return *this;
  }

  std::string header() const {
    return "GGUF" + raw(version_) + raw(tensor_count) + raw(key_count) + keys_ + infos_;
  }
  std::string build() const {
    std::string bytes = header();
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment, '\0');
    return bytes + data_;
  }

  static std::string string(std::string_view text) {
    return raw<uint64_t>(text.size()) + std::string(text);
  }

  uint64_t tensor_count = 0;
  uint64_t key_count = 0;
  uint64_t alignment = 32;

 private:
  uint32_t version_;
  std::string keys_;
  std::string infos_;
  std::string data_;
};

// A safetensors file of a header text and data.
inline std::string safetensors_bytes(std::string_view header, std::string_view data) {
  return raw<uint64_t>(header.size()) + std::string(header) + std::string(data);
}

// The message of the UserError that body must throw.
inline std::string user_error(const std::function<void()>& body) {
  try {
    body();
  } catch (const UserError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no UserError was thrown";
  return "";
}

}  // namespace quince::test
