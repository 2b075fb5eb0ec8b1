// Memory for blocks of kKvBlock positions of keys and values, shared by all sequences of a model. A
// block belongs to whoever holds it, be it sequences, steps under way or an index of prefixes, and
// comes back when the last of them lets go. No MLX. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/anonymous_memory.h"
#include "kernels/kv_type.h"

namespace quince::kernels {

constexpr int kKvBlock = 32;  // positions

// Of a block's keys, or its values, of one head.
size_t kv_part_bytes(KvType type, int width);

// How blocks lie in memory. They come in slabs of `slab_blocks`; in a slab, layer by layer and head
// by head, the parts of all its blocks: attention of one head reads long runs. A part is the keys
// [head_dim][kKvBlock] - one dimension of all positions is contiguous, so that a dot product with a
// query runs over positions in vector lanes - and then the values [kKvBlock][value_width].
// attention_stored.h has the formats with codes.
struct KvLayout {
  int layers = 0;
  int kv_heads = 0;
  int head_dim = 0;
  KvType key_type = KvType::f16;
  KvType value_type = KvType::f16;
  int slab_blocks = 64;  // see fit_slab()

  int value_width() const {  // head_dim up to a multiple of 16; the rest is 0
    return (head_dim + 15) / 16 * 16;
  }
  size_t part_bytes() const {
    return kv_part_bytes(key_type, value_width()) + kv_part_bytes(value_type, value_width());
  }
  // From KvBlock::data.
  size_t key_offset(int layer, int head) const {
    return static_cast<size_t>(layer * kv_heads + head) * slab_blocks * part_bytes();
  }
  size_t value_offset(int layer, int head) const {
    return key_offset(layer, head) + kv_part_bytes(key_type, value_width());
  }
  size_t block_bytes() const {
    return static_cast<size_t>(layers) * kv_heads * part_bytes();
  }
  size_t slab_bytes() const {
    return block_bytes() * slab_blocks;
  }
  // Slabs of about 16 MiB: runs as long as may be, in memory that a short answer can spare.
  void fit_slab();
};

// Of a block: the address of its keys of layer 0, head 0.
using KvPage = std::shared_ptr<std::byte>;

void copy_block(const KvLayout& layout, const std::byte* from, std::byte* to);

class KvPool : public std::enable_shared_from_this<KvPool> {
 public:
  explicit KvPool(const KvLayout& layout) : layout_(layout) {}
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  const KvLayout& layout() const {
    return layout_;
  }
  // The right neighbour of the block that `after` points to, if that is free, so that a sequence
  // lies in long runs. What is in it is unknown, or zero when that is asked for: kernels compute on
  // slots behind the last row and drop the result, which must not be another sequence's NaN. Throws
  // std::bad_alloc.
  KvPage take(const std::byte* after, bool zeroed);
  int64_t blocks_in_use() const;
  size_t reserved_bytes() const;  // address space; the OS gives memory where a block is written

 private:
  struct Slab {
    AnonymousMemory memory;
    std::vector<bool> used;
    std::vector<bool> written;  // has been in use before
    int free;
  };
  size_t slab_bytes() const;  // in whole huge pages
  void give_back(std::byte* block);
  Slab& slab_of(const std::byte* block);
  Slab& emptiest_slab();

  KvLayout layout_;
  mutable std::mutex mutex_;
  std::vector<Slab> slabs_;
  int64_t in_use_ = 0;
};

}  // namespace quince::kernels
