// What is handed over is found again, after a restart too; what is lost or damaged only costs time.
#include "cache/disk_tier.h"

#include <fstream>
#include <random>

#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>

#include "weights/files.h"

namespace quince::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;

class NumberPart : public CachePart {
 public:
  explicit NumberPart(std::vector<std::byte> bytes) : bytes(std::move(bytes)) {}
  bool is_whole() const override {
    return true;
  }
  void thin() override {}
  std::vector<std::byte> bytes;
};

class NumberCodec : public PageCodec {
 public:
  explicit NumberCodec(size_t size = 4000) : size_(size) {}
  const std::string& format() const override {
    return format_;
  }
  uint64_t whole() const override {
    return 1;
  }
  size_t bytes(uint64_t) const override {
    return size_;
  }
  uint64_t pieces(const CachePart&) const override {
    return 1;
  }
  PageImage image(CachePart& part) const override {
    return {1, size_, [bytes = static_cast<NumberPart&>(part).bytes](std::span<std::byte> out) {
              std::copy(bytes.begin(), bytes.end(), out.begin());
            }};
  }
  PageShape shape() const override {
    return {};
  }
  void read_rows(uint64_t, std::span<const std::byte>, size_t, float*, float*) const override {}
  void write_rows(
      uint64_t, std::span<std::byte>, size_t, const float*, const float*) const override {}
  std::shared_ptr<CachePart> load(
      int64_t, uint64_t, std::span<const std::byte> bytes, const CachePart*) const override {
    return std::make_shared<NumberPart>(std::vector<std::byte>(bytes.begin(), bytes.end()));
  }

 private:
  std::string format_ = "numbers";
  size_t size_;
};

// A tier in a folder, and what it says.
struct Tier {
  explicit Tier(const fs::path& folder, uint64_t bytes = 1 << 20, size_t page = 4000) {
    DiskTierOptions options;
    options.folder = folder;
    options.bytes = bytes;
    options.model = "m";
    options.codec = codec = std::make_shared<NumberCodec>(page);
    options.log = [this](const std::string& line) {
      const std::scoped_lock lock(mutex);
      log.push_back(line);
    };
    options.arrived = [this] {
      const std::scoped_lock lock(mutex);
      arrived = true;
      changed.notify_all();
    };
    size = page;
    tier = std::make_unique<DiskTier>(std::move(options));
  }

  void keep(const std::vector<int32_t>& tokens) {
    PageChain before = chain_root(0);
    for (size_t at = 0; at < tokens.size(); at += kCachePage) {
      PageLabel label;
      label.before = before;
      label.tokens.assign(
          tokens.begin() + static_cast<int64_t>(at),
          tokens.begin() + static_cast<int64_t>(std::min(at + kCachePage, tokens.size())));
      label.name = before = chain_next(before, label.tokens);
      NumberPart part(std::vector<std::byte>(size, static_cast<std::byte>(label.tokens[0])));
      tier->keep(std::move(label), codec->image(part));
    }
  }

  DiskTier::Fetched fetch(const std::vector<int32_t>& tokens) {
    tier->read(5, tier->match(0, tokens, {}, 0).pages);
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return arrived; });
    arrived = false;
    auto fetched = tier->take_fetched();
    EXPECT_EQ(fetched.size(), 1u);
    EXPECT_EQ(fetched[0].ticket, 5u);
    for (const DiskTier::FetchedPage& page : fetched[0].pages) {
      const auto& bytes = static_cast<const NumberPart&>(*page.part).bytes;
      EXPECT_EQ(bytes, std::vector<std::byte>(size, static_cast<std::byte>(page.tokens[0])));
    }
    return std::move(fetched[0]);
  }

  std::mutex mutex;
  std::condition_variable changed;
  bool arrived = false;
  std::vector<std::string> log;
  size_t size = 0;
  std::shared_ptr<NumberCodec> codec;
  std::unique_ptr<DiskTier> tier;
};

std::vector<int32_t> tokens_from(int32_t first, size_t count) {
  std::vector<int32_t> tokens(count);
  for (size_t i = 0; i < count; ++i) {
    tokens[i] = first + static_cast<int32_t>(i);
  }
  return tokens;
}

TEST(DiskTier, APromptIsFoundAgainAfterARestart) {
  const TempFolder folder;
  const auto tokens = tokens_from(1, 100);
  {
    Tier tier(folder.path());
    tier.keep(tokens);
    tier.tier->settle();
    EXPECT_EQ(tier.tier->match(0, tokens, {}, 0).tokens, 100);
    EXPECT_EQ(tier.fetch(tokens).pages.size(), 4u);
    EXPECT_THAT(tier.log, IsEmpty());
  }
  Tier tier(folder.path());
  EXPECT_EQ(tier.tier->stats().pages, 4);
  EXPECT_EQ(tier.tier->match(0, tokens_from(1, 70), {}, 0).tokens, 70);
  const auto fetched = tier.fetch(tokens_from(1, 70));
  ASSERT_EQ(fetched.pages.size(), 3u);
  EXPECT_EQ(fetched.pages[2].place, 2);
  EXPECT_EQ(fetched.pages[2].tokens, tokens_from(65, 32));
  EXPECT_THAT(tier.log, IsEmpty());
}

TEST(DiskTier, WhatIsHandedOverLastIsWrittenBeforeItGoes) {
  const TempFolder folder;
  Tier(folder.path()).keep(tokens_from(1, 100));
  EXPECT_EQ(Tier(folder.path()).tier->stats().pages, 4);
}

TEST(DiskTier, KnownPagesAreNotWrittenTwice) {
  const TempFolder folder;
  Tier tier(folder.path());
  tier.keep(tokens_from(1, 100));
  tier.tier->settle();
  tier.keep(tokens_from(1, 100));
  tier.tier->settle();
  EXPECT_EQ(tier.tier->stats().written, 4);
}

TEST(DiskTier, ADamagedPageEndsTheReadAndIsNeverAskedForAgain) {
  const TempFolder folder;
  const auto tokens = tokens_from(1, 96);
  Tier tier(folder.path());
  tier.keep(tokens);
  tier.tier->settle();
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder.path())) {
    if (entry.path().extension() == ".safetensors") {
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(-2 * static_cast<std::streamoff>(tier.size), std::ios::end);  // in the second page
      file.put('x');
    }
  }
  EXPECT_EQ(tier.fetch(tokens).pages.size(), 1u);
  ASSERT_EQ(tier.log.size(), 1u);
  EXPECT_THAT(tier.log[0], HasSubstr("damaged"));
  EXPECT_EQ(tier.tier->match(0, tokens, {}, 0).tokens, 0);
  EXPECT_EQ(Tier(folder.path()).tier->stats().pages, 0);
}

TEST(DiskTier, FilesThatOthersRemoveAreMissedInSilence) {
  const TempFolder folder;
  Tier tier(folder.path());
  tier.keep(tokens_from(1, 96));
  tier.tier->settle();
  for (const fs::directory_entry& entry : fs::directory_iterator(folder.path())) {
    fs::remove_all(entry.path());
  }
  EXPECT_THAT(tier.fetch(tokens_from(1, 96)).pages, IsEmpty());
  EXPECT_THAT(tier.log, IsEmpty());
}

TEST(DiskTier, AnotherSizeOfPageIsNotUsed) {
  const TempFolder folder;
  Tier(folder.path()).keep(tokens_from(1, 32));
  Tier tier(folder.path(), 1 << 20, 5000);
  EXPECT_EQ(tier.tier->stats().pages, 0);
  ASSERT_EQ(tier.log.size(), 1u);
  EXPECT_THAT(tier.log[0], HasSubstr("another size"));
}

TEST(DiskTier, AFullDiskIsSaidOnce) {
  const TempFolder folder;
  Tier tier(folder.path(), 2000);  // less than a page
  tier.keep(tokens_from(1, 32));
  tier.tier->settle();
  tier.keep(tokens_from(50, 32));
  tier.tier->settle();
  ASSERT_EQ(tier.log.size(), 1u);
  EXPECT_THAT(tier.log[0], HasSubstr("do not fit"));
}

TEST(DiskTier, TheCapHoldsWhileItWorks) {
  const TempFolder folder;
  Tier tier(folder.path(), 100'000);
  std::mt19937 random(6);
  const PageFolder files(folder.path(), {"m", "numbers"}, 100'000);
  for (int i = 0; i < 200; ++i) {
    tier.keep(tokens_from(static_cast<int32_t>(random() % 50), 32 * (1 + random() % 4)));
    if (i % 10 == 0) {
      tier.tier->settle();
      ASSERT_LE(files.bytes(), 100'000u);
    }
    const auto tokens = tokens_from(static_cast<int32_t>(random() % 50), 96);
    const DiskMatch match = tier.tier->match(0, tokens, {}, 0);
    if (match.tokens > 0) {
      tier.fetch(tokens);
    }
  }
  EXPECT_GT(tier.tier->stats().read, 0);
  EXPECT_THAT(tier.log, IsEmpty());
}

}  // namespace
}  // namespace quince::test
