#include "kernels/kv_store.h"

#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <new>

namespace quince::kernels {

namespace {

// A window gives a block back only when it lies this far behind, so that the last few tokens can
// always be trimmed.
constexpr int64_t kSlack = kKvBlock;

}  // namespace

// Slabs are reserved, not filled: the OS gives memory, zeroed, where a block is first written.
// (Kernels compute on slots that were never written and drop the result: those must be finite.)
class KvMemory {
 public:
  explicit KvMemory(const KvLayout& layout) : layout_(layout) {}
  ~KvMemory() {
    for (std::byte* slab : slabs_) {
      munmap(slab, layout_.slab_bytes());
    }
  }
  KvMemory(const KvMemory&) = delete;
  KvMemory& operator=(const KvMemory&) = delete;

  size_t bytes() const {
    return static_cast<size_t>(used_) * layout_.block_bytes();
  }

  std::byte* take() {
    if (!free_.empty()) {
      std::byte* block = free_.back();
      free_.pop_back();
      return block;
    }
    if (used_ == static_cast<int64_t>(slabs_.size()) * layout_.slab_blocks) {
      add_slab();
    }
    return slabs_.back() +
           static_cast<size_t>(used_++ % layout_.slab_blocks) * layout_.part_bytes();
  }

  void give_back(std::byte* block) {
    free_.push_back(block);
  }

 private:
  void add_slab() {
    slabs_.reserve(slabs_.size() + 1);
    int flags = MAP_PRIVATE | MAP_ANON;
#if defined(MAP_NORESERVE)
    flags |= MAP_NORESERVE;
#endif
    void* slab = mmap(nullptr, layout_.slab_bytes(), PROT_READ | PROT_WRITE, flags, -1, 0);
    if (slab == MAP_FAILED) {
      throw std::bad_alloc();
    }
    slabs_.push_back(static_cast<std::byte*>(slab));
  }

  KvLayout layout_;
  int64_t used_ = 0;  // blocks of the slabs that have been handed out, in their order
  std::vector<std::byte*> slabs_;
  std::vector<std::byte*> free_;
};

size_t bytes_of(KvType type) {
  return type == KvType::f32 ? 4 : 2;
}

uint32_t KvSpan::visible(int64_t start, int64_t t) const {
  // ones(n): the lowest n bits, n clamped to [0, 32].
  auto ones = [](int64_t n) { return n >= 32 ? ~0u : n <= 0 ? 0u : (1u << n) - 1; };
  uint32_t past = ones(t - start + 1);
  if (window == 0) {
    return past;
  }
  uint32_t too_old = ones(t - window - start + 1);
  return past & (~too_old | ones(keep - start));
}

bool KvSpan::visible_from(int64_t start, int64_t first, int64_t last) const {
  if (start > last) {
    return false;
  }
  return window == 0 || start < keep || start + kKvBlock - 1 > first - window;
}

const KvBlock& KvBlocks::at(int64_t position) const {
  auto after =
      std::upper_bound(blocks.begin(), blocks.end(), position, [](int64_t p, const KvBlock& b) {
        return p < b.start;
      });
  assert(after != blocks.begin());
  return *(after - 1);
}

KvStore::KvStore(const KvLayout& layout, const KvSpan& span) : layout_(layout), span_(span) {
  clear();
}

size_t KvStore::bytes() const {
  return memory_->bytes();
}

std::shared_ptr<const KvBlocks> KvStore::append(int64_t n) {
  auto dead = [&](const KvBlock& block) {
    return !span_.visible_from(block.start, length_ - kSlack, length_);
  };
  const std::vector<KvBlock>& now = list_->blocks;
  int64_t covered = (length_ + kKvBlock - 1) / kKvBlock * kKvBlock;
  if (covered < length_ + n || std::any_of(now.begin(), now.end(), dead)) {
    auto list = std::make_shared<KvBlocks>(KvBlocks{{}, memory_});
    std::vector<std::byte*> reusable;
    for (const KvBlock& block : now) {
      if (dead(block)) {
        reusable.push_back(block.data);
      } else {
        list->blocks.push_back(block);
      }
    }
    for (; covered < length_ + n; covered += kKvBlock) {
      std::byte* data = reusable.empty() ? memory_->take() : reusable.back();
      if (!reusable.empty()) {
        reusable.pop_back();
      }
      list->blocks.push_back({data, covered});
    }
    for (std::byte* data : reusable) {
      memory_->give_back(data);
    }
    list_ = std::move(list);
  }
  length_ += n;
  return list_;
}

bool KvStore::can_trim(int64_t n) const {
  if (n < 0 || n > length_) {
    return false;
  }
  if (span_.window == 0 || n == length_) {
    return true;
  }
  // The blocks behind the kept ones are consecutive; the first of them is the oldest we have.
  int64_t position = length_ - n;
  int64_t oldest_needed = std::max<int64_t>(span_.keep, position - span_.window + 1);
  for (const KvBlock& block : list_->blocks) {
    if (block.start + kKvBlock > span_.keep) {
      bool kept_part = block.start < span_.keep;
      if (!kept_part) {
        return block.start <= oldest_needed;
      }
      if (oldest_needed < block.start + kKvBlock) {
        return true;
      }
    }
  }
  return oldest_needed >= position;  // all that is needed lies in the kept blocks
}

void KvStore::trim(int64_t n) {
  assert(can_trim(n));
  length_ -= n;
  auto list = std::make_shared<KvBlocks>(*list_);
  while (!list->blocks.empty() && list->blocks.back().start >= length_) {
    memory_->give_back(list->blocks.back().data);
    list->blocks.pop_back();
  }
  list_ = std::move(list);
}

void KvStore::clear() {
  length_ = 0;
  memory_ = std::make_shared<KvMemory>(layout_);
  list_ = std::make_shared<const KvBlocks>(KvBlocks{{}, memory_});
}

}  // namespace quince::kernels
