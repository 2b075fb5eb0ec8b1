// The KV cache of one sequence: one mutable inference timeline over all layers. A model makes it
// and is the only one to look inside; others see lengths. Engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <mlx/dtype.h>

namespace quince {

struct CacheOptions {
  // Rotating: at most this many tokens are kept, the first `keep` of them always. Absent: all.
  std::optional<int> max_size;
  int keep = 4;
  // Type of stored keys and values (f32, f16, bf16). Absent: the kernels' best (native: f16... or
  // f32 for f32 models; mlx: the activation type).
  std::optional<mlx::core::Dtype> dtype;
  int expected_length = 0;  // hint: tokens that will be appended, to allocate once
};

class Cache {
 public:
  virtual ~Cache() = default;
  virtual int64_t length() const = 0;  // tokens appended so far = position of the next one
  virtual size_t bytes() const = 0;    // allocated
  // Forgets the last n tokens; false when a rotating cache no longer can (nothing is changed then).
  virtual bool trim(int64_t n) = 0;
  virtual void clear() = 0;
};

}  // namespace quince
