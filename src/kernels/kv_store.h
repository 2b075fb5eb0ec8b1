// Keys and values of one sequence, for all layers that see the same span of it. They lie in blocks
// of kKvBlock positions that need not be neighbours in memory: a sequence is a list of blocks, so
// it grows without copying, a window forgets by giving blocks back, and shared pages can come later
// without a change to the attention kernels. Keys are stored after rotation. No MLX.
//
// Two threads meet here by turns: the engine thread does the bookkeeping (append, trim, clear) when
// it builds a step, native kernels read and write the bytes when the step runs. A step holds the
// block list it was built with. Steps of a sequence run in the order in which they were built, so a
// block that was given back may be written again by a later step only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace quince::kernels {

constexpr int kKvBlock = 32;  // positions

enum class KvType : uint8_t { f32, f16, bf16 };
size_t bytes_of(KvType type);

// How blocks lie in memory. They come in slabs of `slab_blocks`; in a slab, layer by layer and head
// by head, the keys of all its blocks and then their values: attention of one head reads long runs.
// Keys of a block [head_dim][kKvBlock]: one dimension of all positions is contiguous, so that a dot
// product with a query runs over positions in vector lanes. Values of a block
// [kKvBlock][value_width].
struct KvLayout {
  int layers = 0;
  int kv_heads = 0;
  int head_dim = 0;
  KvType type = KvType::f16;
  int slab_blocks = 64;

  int value_width() const {  // head_dim up to a multiple of 16; the rest is 0
    return (head_dim + 15) / 16 * 16;
  }
  size_t part_bytes() const {  // one head's keys, or values, of a block
    return bytes_of(type) * static_cast<size_t>(value_width()) * kKvBlock;
  }
  // From KvBlock::data.
  size_t key_offset(int layer, int head) const {
    return static_cast<size_t>(layer * kv_heads + head) * 2 * run_bytes();
  }
  size_t value_offset(int layer, int head) const {
    return key_offset(layer, head) + run_bytes();
  }
  size_t block_bytes() const {
    return static_cast<size_t>(layers) * kv_heads * 2 * part_bytes();
  }
  size_t slab_bytes() const {
    return block_bytes() * slab_blocks;
  }

 private:
  size_t run_bytes() const {
    return part_bytes() * slab_blocks;
  }
};

// Which positions p a query at position t attends to: p <= t, and p < keep or p > t - window.
struct KvSpan {
  int64_t keep = 0;
  int64_t window = 0;  // 0: all

  // Bit i: position start + i is visible from t.
  uint32_t visible(int64_t start, int64_t t) const;
  // Whether a block that starts there is visible from any t in [first, last].
  bool visible_from(int64_t start, int64_t first, int64_t last) const;
};

struct KvBlock {
  std::byte* data;  // its keys of layer 0, head 0
  int64_t start;    // position of its first slot, a multiple of kKvBlock
};

class KvMemory;  // the allocations behind the blocks

struct KvBlocks {
  std::vector<KvBlock> blocks;             // ascending start
  std::shared_ptr<const KvMemory> memory;  // keeps them alive

  // The block that holds the position, which must be there.
  const KvBlock& at(int64_t position) const;
};

class KvStore {
 public:
  KvStore(const KvLayout& layout, const KvSpan& span);

  const KvLayout& layout() const {
    return layout_;
  }
  const KvSpan& span() const {
    return span_;
  }
  int64_t length() const {
    return length_;
  }
  size_t bytes() const;  // of blocks that have ever been used

  // Gives back blocks that position length() and later ones cannot see, adds room for n positions,
  // and returns the list that a step over them reads and writes. Throws std::bad_alloc.
  std::shared_ptr<const KvBlocks> append(int64_t n);

  // Whether everything that position length() - n sees is still here.
  bool can_trim(int64_t n) const;
  void trim(int64_t n);  // can_trim(n) must hold
  void clear();          // also gives the memory back

 private:
  KvLayout layout_;
  KvSpan span_;
  int64_t length_ = 0;
  std::shared_ptr<KvMemory> memory_;
  std::shared_ptr<const KvBlocks> list_;  // shared with steps: copied before it is changed
};

}  // namespace quince::kernels
