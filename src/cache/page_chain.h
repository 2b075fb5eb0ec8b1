// A page's name outside this process: what all tokens up to its end are, in 128 bits of a SHA-256
// over the name of the page before it and its own tokens. Two pages have one name only when
// everything before them is equal too. No MLX. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace quince {

struct PageChain {
  std::array<uint8_t, 16> bytes{};
  bool operator==(const PageChain&) const = default;
};

PageChain chain_root(uint64_t root);  // sequences of different roots share nothing
PageChain chain_next(const PageChain& before, std::span<const int32_t> tokens);

std::string chain_text(const PageChain& chain);  // 32 hexadecimal digits
std::optional<PageChain> parse_chain(std::string_view text);

// Against damage, not against malice: a change within one 8-byte word is always seen, any other
// with all but one in 2^64.
uint64_t page_checksum(std::span<const std::byte> bytes);

}  // namespace quince

template <>
struct std::hash<quince::PageChain> {
  size_t operator()(const quince::PageChain& chain) const {
    size_t out = 0;
    std::memcpy(&out, chain.bytes.data(), sizeof(out));
    return out;
  }
};
