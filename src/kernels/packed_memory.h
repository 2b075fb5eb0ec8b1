// Memory for packed weights: page-aligned, zeroed, on huge pages where the OS grants them (fewer
// TLB misses while streaming), returned to the OS when freed.
#pragma once

#include <cstddef>
#include <utility>

namespace quince::kernels {

class PackedMemory {
 public:
  PackedMemory() = default;
  // Throws std::bad_alloc.
  explicit PackedMemory(size_t bytes);
  ~PackedMemory();
  PackedMemory(PackedMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  PackedMemory& operator=(PackedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  std::byte* data() {
    return data_;
  }
  const std::byte* data() const {
    return data_;
  }
  size_t size() const {
    return bytes_;
  }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace quince::kernels
