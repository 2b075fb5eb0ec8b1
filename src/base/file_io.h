// Files by descriptor: whole reads and writes at a place, and descriptors that close themselves.
// Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>

namespace quince {

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  int get() const {
    return fd_;
  }
  explicit operator bool() const {
    return fd_ >= 0;
  }

 private:
  int fd_;
};

// False when the file ends before, or on an error (errno).
bool read_at(int fd, uint64_t offset, std::span<std::byte> bytes);
bool write_at(int fd, uint64_t offset, std::span<const std::byte> bytes);
void sync_folder(const std::filesystem::path& folder);  // names in it are on the disk then

}  // namespace quince
