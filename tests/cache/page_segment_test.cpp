// A file of pages: what is written is read back, and nothing that was changed is believed.
#include "cache/page_segment.h"

#include <random>

#include <gtest/gtest.h>

#include "base/error.h"

namespace quince {
namespace {

PageSegment two_pages() {
  PageSegment segment;
  segment.kind = {"model \"x\"", "f16"};
  PageLabel first;
  first.before = chain_root(7);
  first.tokens = {1, 2, 3, 4};
  first.name = chain_next(first.before, first.tokens);
  first.pieces = 3;
  PageLabel second;
  second.before = first.name;
  second.tokens = {5};
  second.name = chain_next(second.before, second.tokens);
  second.pieces = 1;
  segment.pages = {{first, 11, 0, 100}, {second, ~uint64_t{0}, 0, 7}};
  return segment;
}

std::string file_of(PageSegment& segment) {
  std::string bytes = segment_head(segment);
  for (const StoredPage& page : segment.pages) {
    EXPECT_EQ(bytes.size(), page.offset);
    bytes += std::string(page.bytes, 'x');
  }
  return bytes;
}

PageSegment parse(const std::string& bytes) {
  return parse_segment(std::as_bytes(std::span(bytes)), "test.safetensors");
}

TEST(PageSegment, ComesBackAsItWent) {
  PageSegment segment = two_pages();
  const PageSegment read = parse(file_of(segment));
  EXPECT_EQ(read.kind, segment.kind);
  ASSERT_EQ(read.pages.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(read.pages[i].label.name, segment.pages[i].label.name);
    EXPECT_EQ(read.pages[i].label.before, segment.pages[i].label.before);
    EXPECT_EQ(read.pages[i].label.tokens, segment.pages[i].label.tokens);
    EXPECT_EQ(read.pages[i].label.pieces, segment.pages[i].label.pieces);
    EXPECT_EQ(read.pages[i].sum, segment.pages[i].sum);
    EXPECT_EQ(read.pages[i].offset, segment.pages[i].offset);
    EXPECT_EQ(read.pages[i].bytes, segment.pages[i].bytes);
  }
}

TEST(PageSegment, ItsHeadHasOneLengthWhateverTheSums) {
  PageSegment segment = two_pages();
  const size_t length = segment_head(segment).size();
  for (StoredPage& page : segment.pages) {
    page.sum = 0;
  }
  EXPECT_EQ(segment_head(segment).size(), length);
}

TEST(PageSegment, NoByteOfItsHeadCanChangeUnseen) {
  PageSegment segment = two_pages();
  const std::string bytes = file_of(segment);
  int refused = 0;
  int harmless = 0;
  for (size_t i = 0; i < segment.pages.front().offset; ++i) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    try {
      const PageSegment read = parse(changed);
      // White space, or a name that JSON spells in two ways: it says the same.
      EXPECT_EQ(read.kind, segment.kind) << i;
      ASSERT_EQ(read.pages.size(), 2u) << i;
      EXPECT_EQ(read.pages[0].label.tokens, segment.pages[0].label.tokens) << i;
      EXPECT_EQ(read.pages[1].label.name, segment.pages[1].label.name) << i;
      EXPECT_EQ(read.pages[0].sum, segment.pages[0].sum) << i;
      ++harmless;
    } catch (const UserError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 400);
  EXPECT_LT(harmless, 10);
}

TEST(PageSegment, HalfAFileIsNone) {
  PageSegment segment = two_pages();
  const std::string bytes = file_of(segment);
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_THROW(parse(bytes.substr(0, length)), UserError) << length;
  }
}

TEST(PageChain, SaysAllThatCameBefore) {
  const std::vector<int32_t> tokens{1, 2};
  EXPECT_EQ(chain_next(chain_root(0), tokens), chain_next(chain_root(0), tokens));
  EXPECT_NE(chain_next(chain_root(0), tokens), chain_next(chain_root(1), tokens));
  EXPECT_NE(
      chain_next(chain_next(chain_root(0), tokens), tokens),
      chain_next(chain_root(0), std::vector<int32_t>{1, 2, 1, 2}));
  const PageChain name = chain_root(3);
  EXPECT_EQ(parse_chain(chain_text(name)), name);
  EXPECT_FALSE(parse_chain("abc"));
  EXPECT_FALSE(parse_chain(std::string(32, 'g')));
}

TEST(PageChecksum, SeesEveryFlippedBitAndWordsThatChangePlaces) {
  std::mt19937 random(1);
  std::vector<std::byte> bytes(1000);
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(random());
  }
  const uint64_t sum = page_checksum(bytes);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    ASSERT_NE(page_checksum(bytes), sum) << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
  }
  std::swap_ranges(bytes.begin(), bytes.begin() + 8, bytes.begin() + 64);
  EXPECT_NE(page_checksum(bytes), sum);
  EXPECT_NE(page_checksum(std::span(bytes).first(999)), page_checksum(bytes));
}

}  // namespace
}  // namespace quince
