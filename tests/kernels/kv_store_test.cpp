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
  layout.type = KvType::f16;
  return layout;
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
        starts.insert(data + layout.value_offset(layer, head));
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
  KvStore store(small_layout(), {});
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
  KvStore store(small_layout(), {});
  auto a = store.append(1);
  auto b = store.append(1);
  EXPECT_EQ(a.get(), b.get());
}

TEST(KvStore, CountsWhatIsUsedNotWhatIsReserved) {
  KvStore store(small_layout(), {});
  EXPECT_EQ(store.bytes(), 0u);
  store.append(1);
  EXPECT_EQ(store.bytes(), small_layout().block_bytes());
  store.append(32 * 64);  // into a second slab
  EXPECT_EQ(store.bytes(), 65 * small_layout().block_bytes());
  store.trim(2000);
  store.append(2000);
  EXPECT_EQ(store.bytes(), 65 * small_layout().block_bytes());
}

TEST(KvStore, ClearGivesMemoryBackAndOldStepsKeepTheirs) {
  KvStore store(small_layout(), {});
  auto list = store.append(100);
  store.clear();
  EXPECT_EQ(store.length(), 0);
  EXPECT_EQ(store.bytes(), 0u);
  std::memset(list->blocks[3].data, 1, small_layout().part_bytes());  // still ours
}

TEST(KvStore, TrimAll) {
  KvStore store(small_layout(), {0, 40});
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
    KvStore store(small_layout(), span);
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
    KvStore store(small_layout(), span);
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
