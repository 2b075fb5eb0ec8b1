// Memory for a benchmark's rows: zeroed, in huge pages, as a step's workspace has them.
#pragma once

#include "base/anonymous_memory.h"

namespace quince::kernels {

template <typename T>
class Aligned {
 public:
  explicit Aligned(size_t count) : memory_(count * sizeof(T), true) {}
  T* get() const {
    return reinterpret_cast<T*>(memory_.data());
  }
  T& operator[](size_t i) const {
    return get()[i];
  }

 private:
  AnonymousMemory memory_;
};

}  // namespace quince::kernels
