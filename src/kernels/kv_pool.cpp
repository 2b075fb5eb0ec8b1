#include "kernels/kv_pool.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

namespace quince::kernels {

namespace {

// Slabs without a block in use that are kept for the next sequence; more go back to the OS.
constexpr auto kSpareSlabs = 2;

template <typename F>
void each_part(const KvLayout& layout, const F& f) {
  for (int layer = 0; layer < layout.layers; ++layer) {
    for (int head = 0; head < layout.kv_heads; ++head) {
      f(layout.key_offset(layer, head));
    }
  }
}

}  // namespace

size_t kv_part_bytes(KvType type, int width) {
  const auto numbers = static_cast<size_t>(width);
  switch (type) {
    case KvType::f32:
      return numbers * 4 * kKvBlock;
    case KvType::f16:
    case KvType::bf16:
      return numbers * 2 * kKvBlock;
    case KvType::q8:
    case KvType::q4:
      return (kv_code_bytes(type, width) + static_cast<size_t>(kv_groups(width)) * 2) * kKvBlock;
  }
  return 0;
}

void copy_block(const KvLayout& layout, const std::byte* from, std::byte* to) {
  each_part(layout, [&](size_t at) { std::memcpy(to + at, from + at, layout.part_bytes()); });
}

void KvLayout::fit_slab() {
  const size_t fitting = (size_t{16} << 20) / block_bytes();
  slab_blocks = static_cast<int>(std::clamp<size_t>(std::bit_floor(fitting), 4, 64));
}

size_t KvPool::slab_bytes() const {
  constexpr size_t kPage = AnonymousMemory::kHugePage;
  return (layout_.slab_bytes() + kPage - 1) / kPage * kPage;
}

int64_t KvPool::blocks_in_use() const {
  std::lock_guard lock(mutex_);
  return in_use_;
}

size_t KvPool::reserved_bytes() const {
  std::lock_guard lock(mutex_);
  return slabs_.size() * slab_bytes();
}

KvPool::Slab& KvPool::slab_of(const std::byte* block) {
  return *std::find_if(slabs_.begin(), slabs_.end(), [&](const Slab& slab) {
    const std::byte* data = slab.memory.data();
    return data <= block && block < data + layout_.slab_bytes();
  });
}

// The slab with most room, where a sequence that begins can go on for long; a new one when none has
// any.
KvPool::Slab& KvPool::emptiest_slab() {
  const auto most = std::max_element(
      slabs_.begin(), slabs_.end(), [](const Slab& a, const Slab& b) { return a.free < b.free; });
  if (most != slabs_.end() && most->free > 0) {
    return *most;
  }
  slabs_.reserve(slabs_.size() + 1);
  const std::vector<bool> none(static_cast<size_t>(layout_.slab_blocks));
  slabs_.push_back({AnonymousMemory(slab_bytes(), true), none, none, layout_.slab_blocks});
  return slabs_.back();
}

KvPage KvPool::take(const std::byte* after, bool zeroed) {
  std::byte* block = nullptr;
  bool written = false;
  {
    std::lock_guard lock(mutex_);
    Slab* slab = nullptr;
    size_t place = 0;
    if (after) {
      slab = &slab_of(after);
      place = static_cast<size_t>(after - slab->memory.data()) / layout_.part_bytes() + 1;
    }
    if (!slab || place == slab->used.size() || slab->used[place]) {
      slab = &emptiest_slab();
      place = static_cast<size_t>(
          std::find(slab->used.begin(), slab->used.end(), false) - slab->used.begin());
    }
    slab->used[place] = true;
    written = slab->written[place];
    slab->written[place] = true;
    --slab->free;
    ++in_use_;
    block = slab->memory.data() + place * layout_.part_bytes();
  }
  if (written && zeroed) {
    each_part(layout_, [&](size_t at) { std::memset(block + at, 0, layout_.part_bytes()); });
  }
  // When there is no memory for the counter the deleter is called.
  return KvPage(block, [pool = shared_from_this()](std::byte* back) { pool->give_back(back); });
}

void KvPool::give_back(std::byte* block) {
  std::lock_guard lock(mutex_);
  Slab& slab = slab_of(block);
  slab.used[static_cast<size_t>(block - slab.memory.data()) / layout_.part_bytes()] = false;
  --in_use_;
  if (++slab.free < layout_.slab_blocks) {
    return;
  }
  const auto spare = std::count_if(slabs_.begin(), slabs_.end(), [this](const Slab& other) {
    return other.free == layout_.slab_blocks;
  });
  if (spare > kSpareSlabs) {
    slabs_.erase(slabs_.begin() + (&slab - slabs_.data()));
  }
}

}  // namespace quince::kernels
