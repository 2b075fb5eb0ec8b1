// Keys and values of one sequence, for all layers that see the same span of it. They lie in blocks
// of kKvBlock positions that need not be neighbours in memory: a sequence is a list of blocks, so
// it grows without copying, a window forgets by giving blocks back, and sequences share the blocks
// of what they have in common. Keys are stored after rotation. No MLX.
//
// Two threads meet here by turns: the engine thread does the bookkeeping (append, trim, clear) when
// it builds a step, native kernels read and write the bytes when the step runs. A step holds the
// block list it was built with. Steps run in the order in which they were built: a later step may
// read what an earlier one writes, so blocks can be shared before they have been computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/kv_pool.h"

namespace quince::kernels {

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

struct KvCopy {
  KvPage from;
  std::byte* to;
};

struct KvBlocks {
  std::vector<KvBlock> blocks;  // ascending start
  std::vector<KvPage> pages;    // the same blocks, held
  std::vector<KvCopy> copies;   // to be made before the step reads or writes

  // The block that holds the position, which must be there.
  const KvBlock& at(int64_t position) const;
  void add(KvPage page, int64_t start);
};

class KvStore {
 public:
  KvStore(std::shared_ptr<KvPool> pool, const KvSpan& span);

  const KvLayout& layout() const {
    return pool_->layout();
  }
  const KvSpan& span() const {
    return span_;
  }
  int64_t length() const {
    return length_;
  }
  size_t bytes() const;  // of the blocks that it holds, shared or not

  // Gives back blocks that position length() and later ones cannot see, adds room for n positions,
  // and returns the list that a step over them reads and writes. A block that others may hold is
  // copied before it is written. Throws std::bad_alloc.
  std::shared_ptr<const KvBlocks> append(int64_t n);

  // The block that begins at `start`, for others to hold; nothing when it is not here. What is in
  // it by now is never written again.
  KvPage share(int64_t start);
  // An empty store becomes one of `length` positions in these blocks: those that position `length`
  // and later ones see, ascending.
  void adopt(const std::vector<std::pair<int64_t, KvPage>>& blocks, int64_t length);

  // Whether everything that position length() - n sees is still here.
  bool can_trim(int64_t n) const;
  void trim(int64_t n);  // can_trim(n) must hold
  void clear();

 private:
  bool is_dead(const KvBlock& block) const;

  std::shared_ptr<KvPool> pool_;
  KvSpan span_;
  int64_t length_ = 0;
  int64_t shared_end_ = 0;                // positions before it may lie in blocks of others too
  std::shared_ptr<const KvBlocks> list_;  // shared with steps: copied before it is changed
};

}  // namespace quince::kernels
