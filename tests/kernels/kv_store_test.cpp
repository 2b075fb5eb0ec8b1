#include "kernels/kv_store.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <set>

#include <gtest/gtest.h>

namespace quince::kernels {
namespace {

KvLayout small_layout() {
  KvLayout layout;
  layout.layers = 2;
  layout.kv_heads = 3;
  layout.head_dim = 20;
  return layout;
}

std::shared_ptr<KvPool> small_pool() {
  return std::make_shared<KvPool>(small_layout());
}

bool sees(const KvSpan& span, int64_t p, int64_t t) {
  return p <= t && (span.window == 0 || p < span.keep || p > t - span.window);
}

TEST(KvSpan, BitsFollowTheDefinition) {
  for (KvSpan span : {KvSpan{0, 0}, KvSpan{0, 5}, KvSpan{0, 100}, KvSpan{4, 7}, KvSpan{40, 33}}) {
    for (int64_t start : {0, 32, 64, 96}) {
      for (int64_t t = 0; t < 300; ++t) {
        uint32_t bits = span.visible(start, t);
        for (int i = 0; i < kKvBlock; ++i) {
          ASSERT_EQ(bits >> i & 1, sees(span, start + i, t) ? 1u : 0u)
              << span.keep << " " << span.window << " start " << start << " t " << t << " i " << i;
        }
        // May say yes too often (a kept prefix makes whole blocks count), never no too often.
        if (bits != 0) {
          ASSERT_TRUE(span.visible_from(start, t, t));
        }
      }
    }
  }
}

TEST(KvLayout, PartsOfASlabFillItWithoutOverlap) {
  KvLayout layout = small_layout();
  layout.slab_blocks = 3;
  EXPECT_EQ(layout.value_width(), 32);
  std::set<size_t> starts;
  for (int block = 0; block < layout.slab_blocks; ++block) {
    for (int layer = 0; layer < layout.layers; ++layer) {
      for (int head = 0; head < layout.kv_heads; ++head) {
        const size_t data = block * layout.part_bytes();
        starts.insert(data + layout.key_offset(layer, head));
        EXPECT_EQ((layout.value_offset(layer, head) - layout.key_offset(layer, head)) % 64, 0u);
      }
    }
  }
  size_t end = 0;
  for (size_t start : starts) {
    EXPECT_EQ(start, end);
    EXPECT_EQ(start % 64, 0u);
    end = start + layout.part_bytes();
  }
  EXPECT_EQ(end, layout.slab_bytes());
}

TEST(KvStore, GrowsWithoutMovingAndStartsFinite) {
  KvStore store(small_pool(), {});
  auto first = store.append(1);
  ASSERT_EQ(first->blocks.size(), 1u);
  std::byte* data = first->blocks[0].data;
  for (size_t i = 0; i < small_layout().slab_bytes(); ++i) {
    ASSERT_EQ(data[i], std::byte{0});
  }
  auto later = store.append(1000);
  EXPECT_EQ(first->blocks.size(), 1u) << "a step's list must not change under it";
  EXPECT_EQ(later->blocks.size(), 32u);
  EXPECT_EQ(later->blocks[0].data, data);
  EXPECT_EQ(store.length(), 1001);
  EXPECT_EQ(later->at(0).start, 0);
  EXPECT_EQ(later->at(31).start, 0);
  EXPECT_EQ(later->at(32).start, 32);
  EXPECT_EQ(later->at(1000).start, 992);
  EXPECT_GE(store.bytes(), 32 * small_layout().block_bytes());
}

TEST(KvStore, ListIsSharedWhileNothingChanges) {
  KvStore store(small_pool(), {});
  auto a = store.append(1);
  auto b = store.append(1);
  EXPECT_EQ(a.get(), b.get());
}

TEST(KvStore, CountsWhatIsUsedNotWhatIsReserved) {
  KvStore store(small_pool(), {});
  EXPECT_EQ(store.bytes(), 0u);
  store.append(1);
  EXPECT_EQ(store.bytes(), small_layout().block_bytes());
  store.append(32 * 64);  // into a second slab
  EXPECT_EQ(store.bytes(), 65 * small_layout().block_bytes());
  store.trim(2000);
  EXPECT_EQ(store.bytes(), 2 * small_layout().block_bytes());
}

TEST(KvStore, ClearGivesMemoryBackAndOldStepsKeepTheirs) {
  KvStore store(small_pool(), {});
  auto list = store.append(100);
  store.clear();
  EXPECT_EQ(store.length(), 0);
  EXPECT_EQ(store.bytes(), 0u);
  std::memset(list->blocks[3].data, 1, small_layout().part_bytes());  // still ours
}

TEST(KvPool, BlocksComeBackWhenTheLastHolderLetsGo) {
  auto pool = small_pool();
  KvStore store(pool, {});
  auto list = store.append(100);
  EXPECT_EQ(pool->blocks_in_use(), 4);
  KvPage page = store.share(64);
  store.clear();
  EXPECT_EQ(pool->blocks_in_use(), 4) << "a step holds them";
  list.reset();
  EXPECT_EQ(pool->blocks_in_use(), 1);
  page.reset();
  EXPECT_EQ(pool->blocks_in_use(), 0);
}

TEST(KvPool, NeighboursFirstAndWholeSlabsGoBack) {
  auto pool = small_pool();
  const KvLayout layout = small_layout();
  KvStore a(pool, {});
  KvStore b(pool, {});
  a.append(32);
  b.append(32);
  auto list = a.append(320);
  for (size_t i = 2; i < list->blocks.size(); ++i) {
    EXPECT_EQ(list->blocks[i].data, list->blocks[i - 1].data + layout.part_bytes());
  }
  list.reset();
  a.append(32 * 64 * 10);
  const size_t slab = pool->reserved_bytes() / 11;
  EXPECT_EQ(pool->reserved_bytes(), 11 * slab);
  EXPECT_GE(slab, layout.slab_bytes());
  a.clear();
  EXPECT_EQ(pool->blocks_in_use(), 1);
  EXPECT_LE(pool->reserved_bytes(), 3 * slab);
}

// What a sequence computed may be NaN; the next one must not see it behind its last row.
TEST(KvPool, AReusedBlockThatIsNotFilledAtOnceIsZero) {
  auto pool = small_pool();
  KvStore store(pool, {});
  std::memset(store.append(64)->blocks[0].data, 0xff, small_layout().part_bytes());
  store.clear();
  auto list = store.append(33);
  for (size_t i = 0; i < small_layout().part_bytes(); ++i) {
    ASSERT_EQ(list->blocks[1].data[i], std::byte{0});
  }
}

TEST(KvStore, SharesBlocksAndCopiesBeforeItWrites) {
  auto pool = small_pool();
  KvStore first(pool, {});
  auto list = first.append(70);
  KvStore second(pool, {});
  second.adopt({{0, first.share(0)}, {32, first.share(32)}, {64, first.share(64)}}, 66);
  EXPECT_EQ(pool->blocks_in_use(), 3);
  EXPECT_EQ(second.length(), 66);

  auto step = second.append(1);
  ASSERT_EQ(step->copies.size(), 1u);
  EXPECT_EQ(step->copies[0].from.get(), list->blocks[2].data);
  EXPECT_EQ(step->copies[0].to, step->blocks[2].data);
  EXPECT_NE(step->blocks[2].data, list->blocks[2].data);
  EXPECT_EQ(step->blocks[1].data, list->blocks[1].data);
  EXPECT_TRUE(second.append(1)->copies.empty()) << "only once";

  // The one that gave it away must not write there either.
  auto own = first.append(1);
  ASSERT_EQ(own->copies.size(), 1u);
  EXPECT_NE(own->blocks[2].data, list->blocks[2].data);

  // Nor may it after going back into a full block.
  first.trim(71 - 40);
  auto back = first.append(1);
  ASSERT_EQ(back->copies.size(), 1u);
  EXPECT_EQ(back->blocks.size(), 2u);
  EXPECT_NE(back->blocks[1].data, list->blocks[1].data);
}

TEST(KvStore, AdoptingAtABlocksEndCopiesNothing) {
  auto pool = small_pool();
  KvStore first(pool, {});
  first.append(64);
  KvStore second(pool, {});
  second.adopt({{0, first.share(0)}, {32, first.share(32)}}, 64);
  auto step = second.append(1);
  EXPECT_TRUE(step->copies.empty());
  EXPECT_EQ(step->blocks.size(), 3u);
  EXPECT_EQ(first.share(96), nullptr);
}

TEST(KvPool, CopiesAllPartsOfABlock) {
  KvLayout layout = small_layout();
  layout.slab_blocks = 3;
  auto pool = std::make_shared<KvPool>(layout);
  KvPage a = pool->take(nullptr, true);
  KvPage b = pool->take(a.get(), true);
  KvPage c = pool->take(b.get(), true);
  std::byte* slab = a.get();
  for (size_t i = 0; i < layout.slab_bytes(); ++i) {
    slab[i] = static_cast<std::byte>(i * 7 + i / 251);
  }
  const std::vector<std::byte> before(slab, slab + layout.slab_bytes());
  copy_block(layout, a.get(), c.get());
  for (size_t at = 0; at < layout.slab_bytes(); ++at) {
    const size_t run = at / (3 * layout.part_bytes()) * 3 * layout.part_bytes();
    const bool copied = at - run >= 2 * layout.part_bytes();
    ASSERT_EQ(slab[at], before[copied ? at - 2 * layout.part_bytes() : at]);
  }
}

TEST(KvStore, TrimAll) {
  KvStore store(small_pool(), {0, 40});
  store.append(500);
  EXPECT_FALSE(store.can_trim(501));
  EXPECT_FALSE(store.can_trim(-1));
  ASSERT_TRUE(store.can_trim(500));
  store.trim(500);
  EXPECT_EQ(store.length(), 0);
  EXPECT_EQ(store.append(1)->blocks.size(), 1u);
}

TEST(KvStore, WindowCanAlwaysTrimAFewTokens) {
  for (KvSpan span : {KvSpan{0, 40}, KvSpan{4, 60}, KvSpan{33, 40}}) {
    KvStore store(small_pool(), span);
    for (int i = 0; i < 400; ++i) {
      store.append(1);
      EXPECT_TRUE(store.can_trim(std::min<int64_t>(store.length(), kKvBlock - 1)))
          << store.length();
    }
    EXPECT_FALSE(store.can_trim(200));
  }
}

// Random histories: every step must find each visible position in a block of its own, blocks must
// not be shared, and a bounded span must stay bounded.
TEST(KvStore, RandomHistoriesKeepWhatIsVisible) {
  std::mt19937 random(7);
  for (KvSpan span : {KvSpan{0, 0}, KvSpan{0, 33}, KvSpan{4, 64}, KvSpan{50, 40}, KvSpan{64, 1}}) {
    KvStore store(small_pool(), span);
    size_t most_blocks = 0;
    for (int step = 0; step < 3000; ++step) {
      if (random() % 8 == 0) {
        int64_t n = random() % 60;
        if (store.can_trim(n)) {
          store.trim(n);
        }
        continue;
      }
      if (span.window == 0 && store.length() > 3000) {
        store.clear();
      }
      int64_t n = random() % 4 ? 1 : 1 + random() % 90;
      int64_t first = store.length();
      auto list = store.append(n);
      std::set<std::byte*> distinct;
      std::set<int64_t> starts;
      for (const KvBlock& block : list->blocks) {
        distinct.insert(block.data);
        starts.insert(block.start);
      }
      ASSERT_EQ(distinct.size(), list->blocks.size());
      ASSERT_EQ(starts.size(), list->blocks.size());
      most_blocks = std::max(most_blocks, list->blocks.size());
      for (int64_t t = first; t < first + n; ++t) {
        for (int64_t p = 0; p <= t; p += 1) {
          if (sees(span, p, t)) {
            ASSERT_TRUE(starts.count(p / kKvBlock * kKvBlock)) << "p " << p << " t " << t;
          }
        }
      }
    }
    if (span.window > 0) {
      EXPECT_LE(most_blocks, static_cast<size_t>((span.keep + span.window + 90) / kKvBlock + 5));
    }
  }
}

}  // namespace
}  // namespace quince::kernels
