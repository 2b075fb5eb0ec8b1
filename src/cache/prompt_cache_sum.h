// The checksum in the metadata of a prompt cache file (prompt_cache_file.h): of its head, with
// zeros where the sum itself stands, and of the bytes of its tensors in the order of the file.
// Against damage, not against malice, as page_checksum(). Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quince {

inline constexpr std::string_view kPromptCacheSum = "0.quince_sum";  // its name in the metadata

std::string prompt_cache_sum_text(uint64_t sum);  // always as long

// Where the sum's digits are in a head; nothing when it has none.
std::optional<size_t> prompt_cache_sum_place(std::string_view head);

class PromptCacheSum {
 public:
  explicit PromptCacheSum(std::string head);  // of the file's first byte until its tensors
  void add(std::span<const std::byte> tensor);
  uint64_t finish() const;

 private:
  std::vector<uint64_t> sums_;
};

}  // namespace quince
