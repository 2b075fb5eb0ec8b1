// Any bytes as a prompt cache, ours or mlx-lm's, and as a segment of pages.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "cache/page_segment.h"
#include "cache/prompt_cache_file.h"

using namespace quince;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<uint8_t> copy(data, data + size);
  const auto bytes = std::as_bytes(std::span(copy));
  try {
    for (const StoredPage& page : parse_segment(bytes, "input").pages) {
      page_checksum(bytes.subspan(page.offset, page.bytes));
    }
  } catch (const UserError&) {
  }
  try {
    const PromptCacheFile file = parse_prompt_cache(bytes, "input", nullptr);
    const auto floats = static_cast<size_t>(file.kv_heads) * static_cast<size_t>(file.head_dim);
    if (floats > 4096) {
      return 0;
    }
    std::vector<float> keys(floats);
    std::vector<float> values(floats);
    for (size_t layer = 0; layer < file.layers.size(); ++layer) {
      for (int64_t p = -1; p <= file.length && p < 300; ++p) {
        if (file.layers[layer].row_of(p)) {
          file.read(static_cast<int>(layer), p, file.head_dim, keys.data(), values.data());
        }
      }
      if (file.layers[layer].row_of(file.length - 1)) {
        file.read(
            static_cast<int>(layer), file.length - 1, file.head_dim, keys.data(), values.data());
      }
    }
  } catch (const UserError&) {
  }
  return 0;
}
