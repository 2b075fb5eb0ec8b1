#include "kernels/kv_store.h"

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <cstring>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace quince::kernels {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kLargestSlab = size_t{64} << 20;
// A window gives a block back only when it lies this far behind, so that the last few tokens can
// always be trimmed.
constexpr int64_t kSlack = kKvBlock;

struct Free {
  void operator()(std::byte* p) const {
    std::free(p);
  }
};

}  // namespace

class KvMemory {
 public:
  explicit KvMemory(size_t block_bytes) : block_bytes_(block_bytes) {}

  size_t bytes() const {
    return bytes_;
  }

  // wanted: blocks that will be asked for soon, this one included.
  std::byte* take(int64_t wanted) {
    if (free_.empty()) {
      grow(wanted);
    }
    std::byte* block = free_.back();
    free_.pop_back();
    return block;
  }

  void give_back(std::byte* block) {
    free_.push_back(block);
  }

 private:
  // An eighth more each time, within sensible bounds: few allocations, little waste.
  void grow(int64_t wanted) {
    int64_t most = std::max<int64_t>(1, static_cast<int64_t>(kLargestSlab / block_bytes_));
    int64_t count = std::clamp<int64_t>(blocks_ / 8, 1, most);
    count = std::max(count, wanted);
    size_t size = count * block_bytes_;
    size_t alignment = size >= kHugePage ? kHugePage : 64;
    size_t rounded = (size + alignment - 1) / alignment * alignment;
    auto* memory = static_cast<std::byte*>(std::aligned_alloc(alignment, rounded));
    if (!memory) {
      throw std::bad_alloc();
    }
    slabs_.emplace_back(memory);
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (alignment == kHugePage) {
      madvise(memory, rounded, MADV_HUGEPAGE);  // a hint: attention strides over many small pages
    }
#endif
    // Kernels compute on slots that were never written and drop the result: they must be finite.
    std::memset(memory, 0, size);
    for (int64_t i = count - 1; i >= 0; --i) {
      free_.push_back(memory + i * block_bytes_);
    }
    blocks_ += count;
    bytes_ += rounded;
  }

  size_t block_bytes_;
  int64_t blocks_ = 0;
  size_t bytes_ = 0;
  std::vector<std::unique_ptr<std::byte, Free>> slabs_;
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

KvStore::KvStore(const KvLayout& layout, const KvSpan& span, int64_t expected_length)
    : layout_(layout), span_(span), expected_length_(expected_length) {
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
      std::byte* data = reusable.empty() ? take_block() : reusable.back();
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

std::byte* KvStore::take_block() {
  int64_t wanted = 1;
  if (memory_->bytes() == 0) {
    int64_t most = expected_length_;
    if (span_.window > 0) {
      most = std::min(most, span_.keep + span_.window + kSlack);
    }
    wanted = std::max<int64_t>(1, (most + kKvBlock - 1) / kKvBlock);
  }
  return memory_->take(wanted);
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
  memory_ = std::make_shared<KvMemory>(layout_.block_bytes());
  list_ = std::make_shared<const KvBlocks>(KvBlocks{{}, memory_});
}

}  // namespace quince::kernels
