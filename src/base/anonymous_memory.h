// Zeroed memory straight from the OS, which gives pages where they are first written. Why huge
// pages: with small ones a processor on a virtual machine spends up to a third of its reading time
// on looking up addresses. Any thread.
#pragma once

#include <cstddef>

namespace quince {

class AnonymousMemory {
 public:
  static constexpr size_t kHugePage = size_t{2} << 20;

  // huge: begins at a huge page and asks for them (a hint); up to one page of address space more.
  // Throws std::bad_alloc.
  AnonymousMemory(size_t bytes, bool huge);
  ~AnonymousMemory();
  AnonymousMemory(AnonymousMemory&& other) noexcept;
  AnonymousMemory& operator=(AnonymousMemory&& other) noexcept;

  std::byte* data() const {
    return data_;
  }
  size_t size() const {
    return size_;
  }

 private:
  void* map_ = nullptr;
  size_t mapped_ = 0;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace quince
