#include "cache/disk_index.h"

#include <algorithm>

namespace quince {

namespace {

// As in PageTable: a page that is left in the middle is looked for among so many of the latest.
constexpr size_t kMostCompared = 64;

}  // namespace

void DiskIndex::add(const std::string& file, const std::vector<StoredPage>& pages) {
  for (const StoredPage& page : pages) {
    const PageChain& name = page.label.name;
    const auto known = by_name_.find(name);
    if (known != by_name_.end()) {
      // The one with more in it counts; the other's file does not list it any more.
      if (has(name, page.label.pieces)) {
        continue;
      }
      std::erase(by_file_[known->second.file], name);
      known->second = {file, page};
    } else {
      by_name_.emplace(name, Entry{file, page});
      after_[page.label.before].push_back(name);
    }
    by_file_[file].push_back(name);
  }
}

void DiskIndex::remove(const std::string& file) {
  const auto found = by_file_.find(file);
  if (found == by_file_.end()) {
    return;
  }
  for (const PageChain& name : found->second) {
    const PageChain before = by_name_.at(name).stored.label.before;
    by_name_.erase(name);
    const auto siblings = after_.find(before);
    std::erase(siblings->second, name);
    if (siblings->second.empty()) {
      after_.erase(siblings);
    }
  }
  by_file_.erase(found);
}

bool DiskIndex::has(const PageChain& name, uint64_t pieces) const {
  const auto found = by_name_.find(name);
  return found != by_name_.end() && (found->second.stored.label.pieces & pieces) == pieces;
}

const DiskIndex::Entry* DiskIndex::find(
    const PageChain& before, std::span<const int32_t> tokens) const {
  const auto found = by_name_.find(chain_next(before, tokens));
  return found == by_name_.end() ? nullptr : &found->second;
}

const DiskIndex::Entry* DiskIndex::longest_start(
    const PageChain& before, std::span<const int32_t> tokens, size_t& common) const {
  const Entry* best = nullptr;
  common = 0;
  const auto found = after_.find(before);
  if (found == after_.end()) {
    return nullptr;
  }
  const std::vector<PageChain>& names = found->second;
  const size_t compared = std::min(names.size(), kMostCompared);
  for (size_t i = 0; i < compared; ++i) {
    const Entry& entry = by_name_.at(names[names.size() - 1 - i]);
    const std::vector<int32_t>& its = entry.stored.label.tokens;
    const size_t n = std::min(its.size(), tokens.size());
    const auto same = static_cast<size_t>(
        std::mismatch(its.begin(), its.begin() + static_cast<int64_t>(n), tokens.begin()).first -
        its.begin());
    if (same > common) {
      common = same;
      best = &entry;
    }
  }
  return best;
}

DiskMatch DiskIndex::match(
    uint64_t root,
    std::span<const int32_t> tokens,
    const std::vector<bool>& in_memory,
    int64_t found) const {
  const auto size = static_cast<size_t>(page_tokens_);
  std::vector<const Entry*> path;  // null: memory has it
  std::vector<bool> whole;
  PageChain before = chain_root(root);
  size_t at = 0;
  size_t common = 0;
  for (; at + size <= tokens.size(); at += size) {
    const size_t place = path.size();
    const bool known = place < in_memory.size();
    const Entry* entry = find(before, tokens.subspan(at, size));
    if (!known && !entry) {
      break;
    }
    const bool on_disk = entry && (entry->stored.label.pieces & whole_) == whole_;
    const bool good = known && (in_memory[place] || !on_disk);
    path.push_back(good ? nullptr : entry);
    whole.push_back(on_disk || (known && in_memory[place]));
    before = chain_next(before, tokens.subspan(at, size));
  }
  if (const Entry* entry = longest_start(before, tokens.subspan(at), common)) {
    path.push_back(entry);
    whole.push_back((entry->stored.label.pieces & whole_) == whole_);
  }
  DiskMatch match;
  match.tokens = usable_tokens(reach_, page_tokens_, whole, static_cast<int64_t>(at + common));
  if (match.tokens < found + page_tokens_) {
    return {};
  }
  const int64_t seen = seen_from(reach_, match.tokens);
  for (size_t i = 0; i * size < static_cast<size_t>(match.tokens); ++i) {
    const auto start = static_cast<int64_t>(i * size);
    const bool looked_at = start < reach_.keep || start + page_tokens_ > seen;
    // A page that is known, and that nobody looks at, may stay thin.
    if (path[i] && (i >= in_memory.size() || looked_at)) {
      match.pages.push_back({start / page_tokens_, path[i]->file, path[i]->stored});
    }
  }
  return match;
}

}  // namespace quince
