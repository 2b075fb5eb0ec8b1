// Pages of keys and values as a file: a safetensors file with a tensor of bytes for each page,
// "page.0" and so on, and in its metadata what they are: the model, the form of the bytes, and of
// each page its name, the name of the page before it, its tokens and a checksum. Whatever does not
// fit together is refused here, before anybody relies on it. No MLX. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/page_chain.h"
#include "weights/tensor.h"

namespace quince {

// What pages are of. Pages of one kind are bytes of one meaning.
struct PageKind {
  std::string model;   // see model_identity()
  std::string format;  // see PageCodec::format()
  bool operator==(const PageKind&) const = default;
};

struct PageLabel {
  PageChain before;
  PageChain name;
  std::vector<int32_t> tokens;  // full, or the first tokens of a page
  uint64_t pieces = 0;          // which parts of it are there, see PageCodec
};

// A page in a file.
struct StoredPage {
  PageLabel label;
  uint64_t sum = 0;     // page_checksum() of its bytes
  uint64_t offset = 0;  // from the file's begin
  size_t bytes = 0;
};

struct PageSegment {
  PageKind kind;
  std::vector<StoredPage> pages;
};

// The bytes before those of the pages, which follow in this order without a gap; sets their
// offsets.
std::string segment_head(PageSegment& segment);

// bytes: of the whole file, of which only the head is read. Throws UserError.
PageSegment parse_segment(std::span<const std::byte> bytes, std::string_view source);

}  // namespace quince
