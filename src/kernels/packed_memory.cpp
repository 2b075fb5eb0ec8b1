#include "kernels/packed_memory.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace quince::kernels {

namespace {

constexpr size_t kHugePage = AnonymousMemory::kHugePage;
// Address space only: pages come with the first write.
constexpr size_t kRegionBytes = size_t{64} << 20;

size_t round_up(size_t value, size_t step) {
  return (value + step - 1) / step * step;
}

}  // namespace

PackedMemory allocate_alone(size_t bytes) {
  const bool huge = bytes >= 16 * kHugePage;
  auto region = std::make_shared<AnonymousMemory>(huge ? round_up(bytes, kHugePage) : bytes, huge);
  std::byte* data = region->data();
  return PackedMemory(std::move(region), data, bytes);
}

PackedMemory PackArena::allocate(size_t bytes) {
  constexpr size_t kAlignment = 4096;  // no page holds two matrices: simple to reason about
  const size_t need = round_up(bytes, kAlignment);
  std::lock_guard lock(mutex_);
  if (!region_ || region_->size() - used_ < need) {
    region_ =
        std::make_shared<AnonymousMemory>(std::max(kRegionBytes, round_up(need, kHugePage)), true);
    used_ = 0;
  }
  std::byte* data = region_->data() + used_;
  used_ += need;
  return PackedMemory(region_, data, bytes);
}

}  // namespace quince::kernels
