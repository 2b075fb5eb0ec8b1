#include "kernels/packed_memory.h"

#include <algorithm>
#include <cstdint>
#include <new>

#include <sys/mman.h>

namespace quince::kernels {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;
// Address space only: pages come with the first write.
constexpr size_t kRegionBytes = size_t{64} << 20;

size_t round_up(size_t value, size_t step) {
  return (value + step - 1) / step * step;
}

}  // namespace

class PackedRegion {
 public:
  // huge: the last huge page may hold little, so the owner must be able to spare one.
  PackedRegion(size_t size, bool huge) : mapped_(size + (huge ? kHugePage : 0)), size_(size) {
    map_ = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map_ == MAP_FAILED) {
      throw std::bad_alloc();
    }
    data_ = static_cast<std::byte*>(map_);
    if (huge) {
      data_ = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<uintptr_t>(map_), kHugePage));
#if defined(MADV_HUGEPAGE)
      ::madvise(data_, size_, MADV_HUGEPAGE);  // a hint
#endif
    }
  }
  ~PackedRegion() {
    ::munmap(map_, mapped_);
  }
  PackedRegion(const PackedRegion&) = delete;
  PackedRegion& operator=(const PackedRegion&) = delete;

  std::byte* data() {
    return data_;
  }
  size_t size() const {
    return size_;
  }

 private:
  void* map_ = nullptr;
  size_t mapped_;
  std::byte* data_ = nullptr;
  size_t size_;
};

PackedMemory allocate_alone(size_t bytes) {
  const bool huge = bytes >= 16 * kHugePage;
  auto region = std::make_shared<PackedRegion>(huge ? round_up(bytes, kHugePage) : bytes, huge);
  std::byte* data = region->data();
  return PackedMemory(std::move(region), data, bytes);
}

PackedMemory PackArena::allocate(size_t bytes) {
  constexpr size_t kAlignment = 4096;  // no page holds two matrices: simple to reason about
  const size_t need = round_up(bytes, kAlignment);
  std::lock_guard lock(mutex_);
  if (!region_ || region_->size() - used_ < need) {
    region_ =
        std::make_shared<PackedRegion>(std::max(kRegionBytes, round_up(need, kHugePage)), true);
    used_ = 0;
  }
  std::byte* data = region_->data() + used_;
  used_ += need;
  return PackedMemory(region_, data, bytes);
}

}  // namespace quince::kernels
