// Asks memory for packed weights before they are needed. Internal linkage, as in matmul_impl.h.
#pragma once

#include "kernels/matmul_kernels.h"

namespace quince::kernels {
namespace {

// Codes are read in order, and a processor sees that by itself; the scales lie elsewhere in the
// block, and nobody else asks for them. To the second cache: whatever is further ahead would push
// the activations out of the first one.
class Ahead {
 public:
  static constexpr int kChunks = 16;

  explicit Ahead(const PackedMatrix::Layout& w)
      : chunks_(w.chunks()),
        scale_offset_(static_cast<int64_t>(w.scale_offset)),
        scale_bytes_(
            (static_cast<int64_t>(w.block_bytes - w.scale_offset) + chunks_ - 1) / chunks_) {}

  // What follows chunk c of a block by kChunks; `next` is the block that is read after this one.
  template <int kBits>
  void ask(const std::byte* block, const std::byte* next, int64_t c) const {
    c += kChunks;
    if (c >= chunks_) {
      c -= chunks_;
      block = next;
    }
    const std::byte* codes = block + c * (kBits * kVector);
    for (int i = 0; i < kBits; ++i) {
      fetch(codes + i * kVector);
    }
    const std::byte* scales = block + scale_offset_ + c * scale_bytes_;
    fetch(scales);
    if (scale_bytes_ > kVector) {
      fetch(scales + kVector);
    }
  }

 private:
  static void fetch(const std::byte* at) {
    __builtin_prefetch(at, 0, 2);
  }

  int64_t chunks_;
  int64_t scale_offset_;
  int64_t scale_bytes_;  // of a chunk
};

}  // namespace
}  // namespace quince::kernels
