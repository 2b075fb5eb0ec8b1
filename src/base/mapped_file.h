// A file mapped read-only into memory. Shared by all who hold views into it; unmapped when the last
// one lets go. Thread-safe.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace quince {

class MappedFile {
 public:
  // Throws UserError when the file is missing, not a regular file, or unreadable.
  static std::shared_ptr<const MappedFile> open(const std::filesystem::path& path);
  // The same as a copy in memory, which drop() leaves as it is.
  static std::shared_ptr<const MappedFile> read(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::filesystem::path& path() const {
    return path_;
  }
  std::span<const std::byte> bytes() const {
    return {data_, size_};
  }

  // Tells the OS that these bytes will be read soon / are not needed any more (they can be read
  // again, from the file). Hints: never fail, never change what the bytes are.
  void will_need(std::span<const std::byte> range) const;
  void drop(std::span<const std::byte> range) const;

 private:
  MappedFile(std::filesystem::path path, const std::byte* data, size_t size, bool copied);
  std::filesystem::path path_;
  const std::byte* data_;
  size_t size_;
  bool copied_;
};

}  // namespace quince
