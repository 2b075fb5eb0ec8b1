// What a prompt finds in memory and on the disk together, against trying all lengths.
#include "cache/disk_index.h"

#include <random>

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

namespace quince {
namespace {

using Tokens = std::vector<int32_t>;

std::vector<StoredPage> pages_of(const Tokens& tokens, size_t size, uint64_t pieces = 3) {
  std::vector<StoredPage> pages;
  PageChain before = chain_root(0);
  for (size_t at = 0; at < tokens.size(); at += size) {
    StoredPage page;
    page.label.before = before;
    page.label.tokens.assign(
        tokens.begin() + static_cast<int64_t>(at),
        tokens.begin() + static_cast<int64_t>(std::min(at + size, tokens.size())));
    page.label.name = chain_next(before, page.label.tokens);
    page.label.pieces = pieces;
    before = page.label.name;
    pages.push_back(std::move(page));
  }
  return pages;
}

std::vector<int64_t> places(const DiskMatch& match) {
  std::vector<int64_t> out;
  for (const DiskPage& page : match.pages) {
    out.push_back(page.place);
  }
  return out;
}

TEST(DiskIndex, GoesOnWhereMemoryEnds) {
  DiskIndex index({}, 3, 4);
  const Tokens tokens{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
  const auto pages = pages_of(tokens, 4);
  index.add("late", {pages[1], pages[3]});
  EXPECT_EQ(index.match(0, tokens, {}, 0).tokens, 0) << "the first page is nowhere";
  const DiskMatch first = index.match(0, tokens, {true}, 4);
  EXPECT_EQ(first.tokens, 8);
  EXPECT_THAT(places(first), testing::ElementsAre(1));
  EXPECT_EQ(first.pages[0].file, "late");
  // Memory has a page in the middle too; the last one serves in part.
  const DiskMatch all =
      index.match(0, Tokens{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 99}, {true, true, true}, 8);
  EXPECT_EQ(all.tokens, 13);
  EXPECT_THAT(places(all), testing::ElementsAre(3));
  EXPECT_TRUE(index.match(0, tokens, {true, true, true}, 12).pages.empty()) << "too little";
  EXPECT_TRUE(index.match(1, tokens, {true}, 4).pages.empty()) << "another root";
  index.remove("late");
  EXPECT_EQ(index.match(0, tokens, {true}, 4).tokens, 0);
  EXPECT_EQ(index.pages(), 0);
}

TEST(DiskIndex, WholePagesReplaceThinOnesWhereTheWindowLooks) {
  DiskIndex index({4, 0}, 3, 4);
  const Tokens tokens{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
  index.add("file", pages_of(tokens, 4));
  const DiskMatch match =
      index.match(0, Tokens(tokens.begin(), tokens.end() - 1), {false, false, false}, 0);
  EXPECT_EQ(match.tokens, 12);
  EXPECT_THAT(places(match), testing::ElementsAre(2));
}

TEST(DiskIndex, RandomHistoriesAgainstAllLengths) {
  std::mt19937 random(4);
  for (int round = 0; round < 300; ++round) {
    const CacheReach reach = round % 3 == 0   ? CacheReach{}
                             : round % 3 == 1 ? CacheReach{6, 0}
                                              : CacheReach{9, 3};
    DiskIndex index(reach, 3, 4);
    Tokens tokens(1 + random() % 40);
    for (int32_t& token : tokens) {
      token = static_cast<int32_t>(random() % 5);
    }
    std::vector<int> on_disk;  // of full pages: 0 no, 1 thin, 2 whole
    const size_t full = tokens.size() / 4;
    const auto pages = pages_of(tokens, 4);
    for (size_t i = 0; i < full; ++i) {
      on_disk.push_back(static_cast<int>(random() % 6 / 2));
      if (on_disk[i] > 0) {
        StoredPage page = pages[i];
        page.label.pieces = on_disk[i] == 2 ? 3 : 1;
        index.add(std::to_string(random() % 3), {page});
      }
    }
    std::vector<bool> memory(full == 0 ? 0 : random() % (full + 1));
    for (size_t i = 0; i < memory.size(); ++i) {
      memory[i] = random() % 2 == 0;
    }
    int64_t best = 0;
    for (int64_t n = 4; n <= static_cast<int64_t>(full) * 4; n += 4) {
      bool fits = true;
      for (int64_t i = 0; i < n / 4; ++i) {
        const auto at = static_cast<size_t>(i);
        const bool there = at < memory.size() || on_disk[at] > 0;
        const bool whole = (at < memory.size() && memory[at]) || on_disk[at] == 2;
        const bool needed = i * 4 < reach.keep || i * 4 + 4 > seen_from(reach, n);
        fits = fits && there && (whole || !needed);
      }
      best = fits ? n : best;
    }
    const DiskMatch match = index.match(0, std::span(tokens).first(full * 4), memory, 0);
    ASSERT_EQ(match.tokens, best >= 4 ? best : 0) << round;
    for (const DiskPage& page : match.pages) {
      ASSERT_EQ(page.stored.label.name, pages[static_cast<size_t>(page.place)].label.name);
    }
    for (int64_t i = 0; i < match.tokens / 4; ++i) {
      const auto at = static_cast<size_t>(i);
      const bool read = std::any_of(
          match.pages.begin(), match.pages.end(), [&](const DiskPage& p) { return p.place == i; });
      ASSERT_TRUE(read || at < memory.size());
    }
  }
}

}  // namespace
}  // namespace quince
