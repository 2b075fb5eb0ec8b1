#include "kernels/packed_memory.h"

#include <new>

#include <sys/mman.h>

namespace quince::kernels {

PackedMemory::PackedMemory(size_t bytes) : bytes_(bytes) {
  if (bytes == 0) {
    return;
  }
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    throw std::bad_alloc();
  }
#if defined(MADV_HUGEPAGE)
  ::madvise(data, bytes, MADV_HUGEPAGE);  // a hint
#endif
  data_ = static_cast<std::byte*>(data);
}

PackedMemory::~PackedMemory() {
  if (data_) {
    ::munmap(data_, bytes_);
  }
}

}  // namespace quince::kernels
