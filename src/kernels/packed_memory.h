// Memory for packed weights: zeroed, 64-byte aligned, on huge pages where the OS grants them,
// returned to the OS when freed. Why huge pages: with 4 KB pages one core streams a third fewer
// bytes per second on a virtual machine, and a matrix of a small model is too small for huge pages
// of its own, hence the arena.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>

#include "base/anonymous_memory.h"

namespace quince::kernels {

class PackedMemory {
 public:
  PackedMemory() = default;
  PackedMemory(std::shared_ptr<AnonymousMemory> region, std::byte* data, size_t size)
      : region_(std::move(region)), data_(data), size_(size) {}

  std::byte* data() {
    return data_;
  }
  const std::byte* data() const {
    return data_;
  }
  size_t size() const {
    return size_;
  }

 private:
  std::shared_ptr<AnonymousMemory> region_;  // keeps data alive
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Memory of one matrix that shares with no other: huge pages only when it is large. Throws
// std::bad_alloc.
PackedMemory allocate_alone(size_t bytes);

// Hands out parts of large regions, one after the other. A region is freed when the arena has gone
// on to the next one (or is gone) and all its matrices are gone. Thread-safe.
class PackArena {
 public:
  // Throws std::bad_alloc.
  PackedMemory allocate(size_t bytes);

 private:
  std::mutex mutex_;
  std::shared_ptr<AnonymousMemory> region_;
  size_t used_ = 0;  // bytes of region_
};

}  // namespace quince::kernels
