#include "kernels/kv_store.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace quince::kernels {

namespace {

// A window gives a block back only when it lies this far behind, so that the last few tokens can
// always be trimmed.
constexpr int64_t kSlack = kKvBlock;

}  // namespace

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

void KvBlocks::add(KvPage page, int64_t start) {
  blocks.push_back({page.get(), start});
  pages.push_back(std::move(page));
}

KvStore::KvStore(std::shared_ptr<KvPool> pool, const KvSpan& span)
    : pool_(std::move(pool)), span_(span) {
  clear();
}

size_t KvStore::bytes() const {
  return list_->blocks.size() * layout().block_bytes();
}

bool KvStore::is_dead(const KvBlock& block) const {
  return !span_.visible_from(block.start, length_ - kSlack, length_);
}

std::shared_ptr<const KvBlocks> KvStore::append(int64_t n) {
  const std::vector<KvBlock>& now = list_->blocks;
  const int64_t block_start = length_ / kKvBlock * kKvBlock;
  int64_t covered = (length_ + kKvBlock - 1) / kKvBlock * kKvBlock;
  const bool copies = length_ > block_start && length_ < shared_end_;
  std::shared_ptr<const KvBlocks> for_step;
  if (covered < length_ + n || copies ||
      std::any_of(now.begin(), now.end(), [this](const KvBlock& b) { return is_dead(b); })) {
    auto list = std::make_shared<KvBlocks>();
    const auto last = [&list]() -> const std::byte* {
      return list->blocks.empty() ? nullptr : list->blocks.back().data;
    };
    std::vector<KvCopy> to_copy;
    for (size_t i = 0; i < now.size(); ++i) {
      if (copies && now[i].start == block_start) {
        list->add(pool_->take(last(), false), block_start);
        to_copy.push_back({list_->pages[i], list->blocks.back().data});
      } else if (!is_dead(now[i])) {
        list->add(list_->pages[i], now[i].start);
      }
    }
    for (; covered < length_ + n; covered += kKvBlock) {
      list->add(pool_->take(last(), covered + kKvBlock > length_ + n), covered);
    }
    if (!to_copy.empty()) {
      auto copying = std::make_shared<KvBlocks>(*list);
      copying->copies = std::move(to_copy);
      for_step = std::move(copying);
    }
    list_ = std::move(list);
  }
  if (copies) {
    shared_end_ = block_start;
  }
  length_ += n;
  return for_step ? for_step : list_;
}

KvPage KvStore::share(int64_t start) {
  for (size_t i = 0; i < list_->blocks.size(); ++i) {
    if (list_->blocks[i].start == start) {
      shared_end_ = std::max(shared_end_, start + kKvBlock);
      return list_->pages[i];
    }
  }
  return nullptr;
}

void KvStore::adopt(const std::vector<std::pair<int64_t, KvPage>>& blocks, int64_t length) {
  assert(length_ == 0 && list_->blocks.empty());
  auto list = std::make_shared<KvBlocks>();
  for (const auto& [start, page] : blocks) {
    list->add(page, start);
  }
  list_ = std::move(list);
  length_ = length;
  shared_end_ = (length + kKvBlock - 1) / kKvBlock * kKvBlock;
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
  shared_end_ = std::min(shared_end_, (length_ + kKvBlock - 1) / kKvBlock * kKvBlock);
  auto list = std::make_shared<KvBlocks>(*list_);
  while (!list->blocks.empty() && list->blocks.back().start >= length_) {
    list->blocks.pop_back();
    list->pages.pop_back();
  }
  list_ = std::move(list);
}

void KvStore::clear() {
  length_ = 0;
  shared_end_ = 0;
  list_ = std::make_shared<const KvBlocks>();
}

}  // namespace quince::kernels
