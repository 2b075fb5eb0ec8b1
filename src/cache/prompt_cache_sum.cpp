#include "cache/prompt_cache_sum.h"

#include <utility>

#include <fmt/format.h>

#include "cache/page_chain.h"

namespace quince {

std::string prompt_cache_sum_text(uint64_t sum) {
  return fmt::format("{:016x}", sum);
}

std::optional<size_t> prompt_cache_sum_place(std::string_view head) {
  // Quotation marks within a JSON text are escaped: only the name itself is found.
  const std::string name = fmt::format("\"{}\":\"", kPromptCacheSum);
  const size_t found = head.find(name);
  const size_t place = found + name.size();
  const size_t digits = prompt_cache_sum_text(0).size();
  if (found == std::string_view::npos || place + digits > head.size()) {
    return std::nullopt;
  }
  return place;
}

PromptCacheSum::PromptCacheSum(std::string head) {
  const std::string none = prompt_cache_sum_text(0);
  if (const auto place = prompt_cache_sum_place(head)) {
    head.replace(*place, none.size(), none);
  }
  add(std::as_bytes(std::span(std::as_const(head))));
}

void PromptCacheSum::add(std::span<const std::byte> tensor) {
  sums_.push_back(page_checksum(tensor));
}

uint64_t PromptCacheSum::finish() const {
  return page_checksum(std::as_bytes(std::span(sums_)));
}

}  // namespace quince
