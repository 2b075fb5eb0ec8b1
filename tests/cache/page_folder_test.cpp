// The disk tier's folder: whole files or none, never more bytes than the cap, whoever shares it.
#include "cache/page_folder.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <random>
#include <thread>

#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>

#include "weights/files.h"

namespace quince::test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr size_t kPageBytes = 1000;

PageSegment pages_of(const std::vector<int32_t>& firsts) {
  PageSegment segment;
  for (const int32_t first : firsts) {
    StoredPage page;
    page.label.before = chain_root(0);
    page.label.tokens = {first, first + 1};
    page.label.name = chain_next(page.label.before, page.label.tokens);
    page.label.pieces = 1;
    page.bytes = kPageBytes;
    segment.pages.push_back(std::move(page));
  }
  return segment;
}

// The bytes of a page say whose they are.
PageFolder::Written write(const PageFolder& folder, PageSegment& segment) {
  return folder.write(segment, [&](size_t i, std::span<std::byte> bytes) {
    const int32_t first = segment.pages[i].label.tokens.front();
    std::fill(bytes.begin(), bytes.end(), static_cast<std::byte>(first));
  });
}

bool has_right_bytes(const PageFolder& folder, const std::string& file, const StoredPage& page) {
  std::vector<std::byte> bytes(page.bytes);
  const auto want = static_cast<std::byte>(page.label.tokens.front());
  return folder.read(file, page, bytes) &&
         std::all_of(bytes.begin(), bytes.end(), [&](std::byte b) { return b == want; });
}

std::vector<PageFolder::Found> scan(const PageFolder& folder, std::vector<std::string>& log) {
  return folder.scan([&](const std::string& line) { log.push_back(line); });
}

const PageKind kKind{"model", "f16"};

TEST(PageFolder, AnotherProcessFindsWhatWasWritten) {
  const TempFolder temp;
  PageSegment segment = pages_of({1, 2, 3});
  {
    const PageFolder folder(temp / "tier", kKind, 1 << 20);
    EXPECT_THAT(write(folder, segment).removed, IsEmpty());
  }
  const PageFolder folder(temp / "tier", kKind, 1 << 20);
  std::vector<std::string> log;
  const auto found = scan(folder, log);
  EXPECT_THAT(log, IsEmpty());
  ASSERT_EQ(found.size(), 1u);
  ASSERT_EQ(found[0].segment.pages.size(), 3u);
  for (const StoredPage& page : found[0].segment.pages) {
    EXPECT_TRUE(has_right_bytes(folder, found[0].file, page));
  }
}

TEST(PageFolder, OtherModelsAndFormatsAreNotSeen) {
  const TempFolder temp;
  PageSegment segment = pages_of({1});
  const PageFolder folder(temp.path(), kKind, 1 << 20);
  const std::string file = write(folder, segment).file;
  std::vector<std::string> log;
  EXPECT_THAT(scan(PageFolder(temp.path(), {"model", "q8"}, 1 << 20), log), IsEmpty());
  const PageFolder other(temp.path(), {"other", "f16"}, 1 << 20);
  EXPECT_THAT(scan(other, log), IsEmpty());
  EXPECT_THAT(log, IsEmpty());
  // Not even when somebody puts the file there.
  fs::copy_file(folder.path() / file, other.path() / file);
  EXPECT_THAT(scan(other, log), IsEmpty());
  EXPECT_THAT(log, ElementsAre(HasSubstr("pages of model model as f16, want other as f16")));
}

TEST(PageFolder, DamageIsNeverTaken) {
  const TempFolder temp;
  const PageFolder folder(temp.path(), kKind, 1 << 20);
  PageSegment segment = pages_of({1, 2});
  const std::string file = write(folder, segment).file;
  const fs::path path = folder.path() / file;
  const std::string good = read_file(path);
  std::vector<std::string> log;
  std::mt19937 random(3);
  int in_head = 0;
  int in_page = 0;
  for (int i = 0; i < 300; ++i) {
    std::string bad = good;
    const size_t at = random() % bad.size();
    bad[at] = static_cast<char>(bad[at] ^ (1 << random() % 8));
    temp.write(fs::relative(path, temp.path()).string(), bad);
    log.clear();
    const auto found = scan(folder, log);
    if (found.empty()) {
      ASSERT_EQ(log.size(), 1u);
      ++in_head;
      continue;
    }
    for (const StoredPage& page : found[0].segment.pages) {
      try {
        ASSERT_TRUE(has_right_bytes(folder, file, page));
      } catch (const UserError&) {
        ++in_page;
      }
    }
  }
  EXPECT_GT(in_head, 20);
  EXPECT_GT(in_page, 100);
  fs::resize_file(path, good.size() - 1);
  log.clear();
  EXPECT_THAT(scan(folder, log), IsEmpty());
  EXPECT_EQ(log.size(), 1u);
  EXPECT_THROW(has_right_bytes(folder, file, segment.pages[1]), UserError);
  fs::remove(path);
  EXPECT_FALSE(has_right_bytes(folder, file, segment.pages[1])) << "gone is not damaged";
}

TEST(PageFolder, LeastRecentlyUsedGoFirst) {
  using Files = std::vector<FolderFile>;
  const Files files{{"a", 10, 3}, {"b", 20, 1}, {"c", 30, 2}};
  const auto names = [&](uint64_t wanted, uint64_t cap) {
    std::vector<std::string> out;
    for (const FolderFile& file : files_to_remove(files, wanted, cap)) {
      out.push_back(file.path.string());
    }
    return out;
  };
  EXPECT_THAT(names(40, 100), IsEmpty());
  EXPECT_THAT(names(41, 100), ElementsAre("b"));
  EXPECT_THAT(names(60, 100), ElementsAre("b"));
  EXPECT_THAT(names(61, 100), ElementsAre("b", "c"));
  EXPECT_THAT(names(0, 5), ElementsAre("b", "c", "a"));
}

TEST(PageFolder, NeverHoldsMoreThanItsCap) {
  const TempFolder temp;
  const uint64_t cap = 12'000;
  const PageFolder folder(temp.path(), kKind, cap);
  const PageFolder other(temp.path(), {"other", "f16"}, cap);
  std::mt19937 random(5);
  std::map<std::string, PageSegment> here;
  for (int i = 0; i < 60; ++i) {
    PageSegment segment = pages_of({static_cast<int32_t>(random() % 50), 60});
    const bool ours = random() % 3 > 0;
    const PageFolder::Written written = write(ours ? folder : other, segment);
    ASSERT_LE(folder.bytes(), cap);
    for (const std::string& file : written.removed) {
      ASSERT_EQ(here.erase(file), ours ? 1u : 0u);
    }
    if (ours) {
      here.emplace(written.file, segment);
    }
  }
  // A smaller cap holds at once.
  EXPECT_LE(PageFolder(temp.path(), kKind, 5000).bytes(), 5000u);
  const PageFolder tiny(temp.path(), kKind, 500);
  PageSegment large = pages_of({1});
  EXPECT_THROW(write(tiny, large), UserError);
  EXPECT_EQ(tiny.bytes(), 0u);
}

TEST(PageFolder, AReadMakesRecent) {
  const TempFolder temp;
  const PageFolder folder(temp.path(), kKind, 7000);
  PageSegment first = pages_of({1, 2});
  PageSegment second = pages_of({3, 4});
  const std::string used = write(folder, first).file;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::string unused = write(folder, second).file;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(has_right_bytes(folder, used, first.pages[0]));
  PageSegment third = pages_of({5, 6});
  EXPECT_THAT(write(folder, third).removed, ElementsAre(unused));
}

// kill -9 at any moment: the next start finds whole segments only, and nothing of the rest.
TEST(PageFolder, SurvivesBeingKilledFiftyTimes) {
  const TempFolder temp;
  const uint64_t cap = 300'000;
  std::mt19937 random(9);
  int found_pages = 0;
  for (int round = 0; round < 50; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const PageFolder folder(temp.path(), kKind, cap);
      for (int32_t i = 0;; ++i) {
        PageSegment segment = pages_of({i % 100, (i + 1) % 100, (i + 2) % 100, (i + 3) % 100});
        write(folder, segment);
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(500 + random() % 20'000));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const PageFolder folder(temp.path(), kKind, cap);
    ASSERT_LE(folder.bytes(), cap);
    std::vector<std::string> log;
    const auto found = scan(folder, log);
    ASSERT_THAT(log, IsEmpty());
    for (const fs::directory_entry& entry : fs::directory_iterator(folder.path())) {
      ASSERT_EQ(entry.path().extension(), ".safetensors") << "a leftover";
    }
    for (const PageFolder::Found& segment : found) {
      for (const StoredPage& page : segment.segment.pages) {
        ASSERT_TRUE(has_right_bytes(folder, segment.file, page));
        ++found_pages;
      }
    }
  }
  EXPECT_GT(found_pages, 0);
}

}  // namespace
}  // namespace quince::test
