#include "cache/page_table.h"

#include <map>
#include <random>

#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>

namespace quince {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;
using Tokens = std::vector<int32_t>;

PageTableOptions small(int64_t limit = 100) {
  PageTableOptions options;
  options.page_tokens = 4;
  options.limit = limit;
  return options;
}

// Takes and names the pages of these tokens, and lets go of them.
std::vector<PageId> keep(PageTable& table, const Tokens& tokens, uint64_t time, uint64_t root = 0) {
  std::vector<PageId> pages;
  PageId parent = kNoPage;
  for (size_t at = 0; at < tokens.size(); at += 4) {
    const PageId page = table.take();
    const auto its = std::span(tokens).subspan(at, std::min<size_t>(4, tokens.size() - at));
    parent = table.name(page, parent, root, its, time);
    if (parent != page) {
      table.let_go(page);
      table.hold(parent);
    }
    pages.push_back(parent);
  }
  for (size_t i = pages.size(); i-- > 0;) {
    table.let_go(pages[i]);
  }
  return pages;
}

TEST(PageTable, FindsTheLongestBeginning) {
  PageTable table(small());
  const auto pages = keep(table, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 1);
  EXPECT_EQ(table.held(), 0);
  EXPECT_EQ(table.kept(), 3);
  const auto match = [&](const Tokens& tokens) { return table.match(0, tokens, 2); };
  EXPECT_EQ(match({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}).tokens, 10);
  EXPECT_THAT(match({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}).pages, pages);
  EXPECT_EQ(match({1, 2, 3, 4, 5, 6, 0, 8}).tokens, 6);
  EXPECT_THAT(match({1, 2, 3, 4, 5, 6, 0, 8}).pages, ElementsAre(pages[0], pages[1]));
  EXPECT_EQ(match({1, 2, 3}).tokens, 3);
  EXPECT_EQ(match({2, 2, 3}).tokens, 0);
  EXPECT_THAT(match({}).pages, IsEmpty());
  EXPECT_EQ(table.match(1, Tokens{1, 2, 3, 4}, 2).tokens, 0) << "another model's";
}

TEST(PageTable, PagesBeingComputedDoNotCountYet) {
  PageTable table(small());
  keep(table, {1, 2, 3, 4, 5, 6}, 7);
  const PageMatch now = table.match(0, Tokens{1, 2, 3, 4, 5}, 7);
  EXPECT_TRUE(now.growing);
  EXPECT_EQ(now.tokens, 0);
  EXPECT_EQ(table.match(0, Tokens{1, 2, 3, 4, 5}, 8).tokens, 5);
}

TEST(PageTable, OneNameOnePage) {
  PageTable table(small());
  const auto first = keep(table, {1, 2, 3, 4, 5, 6, 7, 8}, 1);
  EXPECT_EQ(keep(table, {1, 2, 3, 4, 5, 6, 7, 8}, 2), first);
  EXPECT_EQ(table.kept(), 2);
}

TEST(PageTable, TheEndOfATurnGivesWayToTheWholePage) {
  PageTable table(small());
  keep(table, {1, 2, 3, 4, 5, 6}, 1);
  keep(table, {1, 2, 3, 4, 5, 6, 7, 8}, 2);
  EXPECT_EQ(table.kept(), 2);
  EXPECT_EQ(table.take_forgotten().size(), 1u);
}

TEST(PageTable, TheLeastRecentlyUsedGoesFirstAndEndsBeforeWhatTheyFollow) {
  PageTable table(small(4));
  const auto a = keep(table, {1, 1, 1, 1, 2, 2, 2, 2}, 1);
  const auto b = keep(table, {3, 3, 3, 3, 4, 4, 4, 4}, 2);
  table.hold(a[0]);  // used again
  table.let_go(a[0]);
  EXPECT_EQ(table.free(), 4);
  table.take();
  EXPECT_THAT(table.take_forgotten(), ElementsAre(a[1]));
  table.take();
  EXPECT_THAT(table.take_forgotten(), ElementsAre(b[1]));
  table.take();
  EXPECT_THAT(table.take_forgotten(), ElementsAre(b[0]));
  EXPECT_EQ(table.match(0, Tokens{1, 1, 1, 1, 2}, 9).tokens, 4);
  table.take();
  EXPECT_EQ(table.free(), 0);
  EXPECT_EQ(table.kept(), 0);
}

TEST(PageTable, WhatFollowsAForgottenPageIsForgottenWithIt) {
  PageTable table(small());
  const auto a = keep(table, {1, 1, 1, 1, 2, 2, 2, 2, 3, 3}, 1);
  const auto b = keep(table, {1, 1, 1, 1, 5, 5, 5, 5}, 1);
  table.hold(b[1]);
  table.forget(a[0]);
  EXPECT_THAT(table.take_forgotten(), UnorderedElementsAre(a[0], a[1], a[2], b[1]));
  EXPECT_EQ(table.held(), 1) << "whoever holds it keeps it";
  EXPECT_EQ(table.kept(), 0);
  table.let_go(b[1]);
  EXPECT_EQ(table.held(), 0);
  EXPECT_EQ(table.match(0, Tokens{1, 1, 1, 1}, 9).tokens, 0);
}

TEST(PageTable, AWindowNeedsOnlyWhatItSees) {
  PageTableOptions options = small();
  options.reach = {6, 3};
  PageTable table(options);
  Tokens tokens;
  for (int i = 0; i < 24; ++i) {
    tokens.push_back(i);
  }
  const auto pages = keep(table, tokens, 1);
  const auto found = [&] { return table.match(0, tokens, 2).tokens; };
  EXPECT_EQ(found(), 24);
  // Position 24 looks at 0 to 2 and 19 to 23.
  table.set_thin(pages[1]);
  table.set_thin(pages[2]);
  table.set_thin(pages[3]);
  EXPECT_EQ(found(), 24);
  table.set_thin(pages[4]);  // 16 to 19
  EXPECT_EQ(found(), 4) << "4 and before look at nothing that is missing";
  EXPECT_EQ(table.match(0, tokens, 2).known, 24);
  table.set_whole(pages[4], 1);
  table.set_thin(pages[0]);
  EXPECT_EQ(found(), 0);
}

// Against a table that is a plain list of all prefixes.
TEST(PageTable, RandomHistoriesAgreeWithAPlainList) {
  std::mt19937 random(3);
  for (int64_t limit : {12, 40, 1000}) {
    PageTableOptions options = small(limit);
    options.kept_limit = limit / 2;
    options.alarm = limit / 3;
    PageTable table(options);
    std::map<PageId, Tokens> known;  // the whole prefix of each named page
    uint64_t time = 0;
    for (int i = 0; i < 20000; ++i) {
      Tokens tokens(1 + random() % 40);
      for (int32_t& token : tokens) {
        token = static_cast<int32_t>(random() % 2);
      }
      ++time;
      const PageMatch match = table.match(0, tokens, time);
      size_t best = 0;
      for (const auto& [page, prefix] : known) {
        size_t common = 0;
        while (common < std::min(prefix.size(), tokens.size()) &&
               prefix[common] == tokens[common]) {
          ++common;
        }
        best = std::max(best, common);
      }
      // It compares the 64 latest of a place: with tokens of two kinds there are no more than 30.
      ASSERT_EQ(match.tokens, static_cast<int64_t>(best));
      for (size_t p = 0; p < match.pages.size(); ++p) {
        const Tokens& prefix = known.at(match.pages[p]);
        const size_t last = std::min(best, (p + 1) * 4);
        ASSERT_TRUE(std::equal(
            prefix.begin(), prefix.begin() + static_cast<int64_t>(last), tokens.begin()));
      }
      if (static_cast<int64_t>(tokens.size() + 3) / 4 <= limit) {
        const auto pages = keep(table, tokens, time);
        const auto forgotten = table.take_forgotten();
        for (size_t p = 0; p < pages.size(); ++p) {
          known[pages[p]] = Tokens(
              tokens.begin(),
              tokens.begin() + static_cast<int64_t>(std::min(tokens.size(), (p + 1) * 4)));
        }
        for (const PageId page : forgotten) {
          if (!table.is_named(page)) {
            known.erase(page);
          }
        }
      }
      ASSERT_EQ(table.kept(), static_cast<int64_t>(known.size()));
      ASSERT_LE(table.kept(), options.alarm);
      ASSERT_EQ(table.held(), 0);
    }
  }
}

}  // namespace
}  // namespace quince
