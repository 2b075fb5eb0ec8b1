#include "cache/page_chain.h"

#include <algorithm>
#include <bit>

#include "weights/digest.h"

namespace quince {

namespace {

PageChain shortened(Sha256& sha) {
  const std::array<uint8_t, 32> digest = sha.finish();
  PageChain chain;
  std::copy_n(digest.begin(), chain.bytes.size(), chain.bytes.begin());
  return chain;
}

// Splits the sum into lanes, so that a core works on several words at once.
constexpr size_t kLanes = 8;
constexpr uint64_t kOdd = 0x9e3779b97f4a7c15u;

}  // namespace

PageChain chain_root(uint64_t root) {
  Sha256 sha;
  sha.add_text("quince pages");
  sha.add_number(root);
  return shortened(sha);
}

PageChain chain_next(const PageChain& before, std::span<const int32_t> tokens) {
  Sha256 sha;
  sha.add(std::as_bytes(std::span(before.bytes)));
  sha.add(std::as_bytes(tokens));
  return shortened(sha);
}

std::string chain_text(const PageChain& chain) {
  return hex(chain.bytes);
}

std::optional<PageChain> parse_chain(std::string_view text) {
  PageChain chain;
  if (text.size() != chain.bytes.size() * 2) {
    return std::nullopt;
  }
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) {
      return std::nullopt;
    }
    chain.bytes[i / 2] = static_cast<uint8_t>(chain.bytes[i / 2] << 4 | digit);
  }
  return chain;
}

uint64_t page_checksum(std::span<const std::byte> bytes) {
  // For a given word a step is a bijection of its lane, and for a given lane of the word.
  const auto step = [](uint64_t lane, uint64_t word) { return std::rotl(lane ^ word, 29) * kOdd; };
  std::array<uint64_t, kLanes> lanes{1, 2, 3, 4, 5, 6, 7, 8};
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  std::array<uint64_t, kLanes> words;
  for (; left >= sizeof(words); at += sizeof(words), left -= sizeof(words)) {
    std::memcpy(words.data(), at, sizeof(words));
    for (size_t i = 0; i < kLanes; ++i) {
      lanes[i] = step(lanes[i], words[i]);
    }
  }
  words = {};
  if (left > 0) {
    std::memcpy(words.data(), at, left);
  }
  uint64_t sum = bytes.size();
  for (size_t i = 0; i < kLanes; ++i) {
    sum = step(sum, step(lanes[i], words[i]));
  }
  return sum;
}

}  // namespace quince
