#include "base/anonymous_memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>
#include <utility>

namespace quince {

AnonymousMemory::AnonymousMemory(size_t bytes, bool huge)
    : mapped_(bytes + (huge ? kHugePage : 0)), size_(bytes) {
  map_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
  if (map_ == MAP_FAILED) {
    throw std::bad_alloc();
  }
  data_ = static_cast<std::byte*>(map_);
  if (huge) {
    data_ += -reinterpret_cast<uintptr_t>(map_) % kHugePage;
#if defined(MADV_HUGEPAGE)
    madvise(data_, size_, MADV_HUGEPAGE);
#endif
  }
}

AnonymousMemory::~AnonymousMemory() {
  if (map_ != nullptr) {
    munmap(map_, mapped_);
  }
}

AnonymousMemory::AnonymousMemory(AnonymousMemory&& other) noexcept {
  *this = std::move(other);
}

AnonymousMemory& AnonymousMemory::operator=(AnonymousMemory&& other) noexcept {
  std::swap(map_, other.map_);
  std::swap(mapped_, other.mapped_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace quince
