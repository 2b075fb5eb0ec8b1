// Which pages lie on the disk, and in which segment. Pure policy: names and tokens; no files, no
// MLX. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/page.h"
#include "cache/page_segment.h"

namespace quince {

// A page to be read: which one of the prompt, where it lies, how much of it the prompt begins with.
struct DiskPage {
  int64_t place = 0;
  std::string file;
  StoredPage stored;
};

// What a prompt that goes on from memory and disk together would find.
struct DiskMatch {
  int64_t tokens = 0;           // that it could go on from
  std::vector<DiskPage> pages;  // that memory lacks for that, ascending
};

class DiskIndex {
 public:
  // whole: the pieces of a page that no window has forgotten a part of.
  DiskIndex(const CacheReach& reach, uint64_t whole, int page_tokens = kCachePage)
      : reach_(reach), whole_(whole), page_tokens_(page_tokens) {}

  void add(const std::string& file, const std::vector<StoredPage>& pages);
  void remove(const std::string& file);
  // Whether the page is there with at least these pieces.
  bool has(const PageChain& name, uint64_t pieces) const;
  int64_t pages() const {
    return static_cast<int64_t>(by_name_.size());
  }

  // in_memory: of the prompt's first full pages, whether they are whole there. found: tokens that
  // memory alone would give. Nothing when the disk does not add a page to that.
  DiskMatch match(
      uint64_t root,
      std::span<const int32_t> tokens,
      const std::vector<bool>& in_memory,
      int64_t found) const;

 private:
  struct Entry {
    std::string file;
    StoredPage stored;
  };
  const Entry* find(const PageChain& before, std::span<const int32_t> tokens) const;
  const Entry* longest_start(
      const PageChain& before, std::span<const int32_t> tokens, size_t& common) const;

  CacheReach reach_;
  uint64_t whole_;
  int page_tokens_;
  std::unordered_map<PageChain, Entry> by_name_;
  std::unordered_map<PageChain, std::vector<PageChain>> after_;  // names by what comes before
  std::map<std::string, std::vector<PageChain>> by_file_;
};

}  // namespace quince
