#include "cache/page_table.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace quince {

namespace {

// A page that is left in the middle is looked for among so many of the latest at a place.
constexpr size_t kMostCompared = 64;

// The mixing step of SplitMix64 (Steele, Lea and Flood 2014).
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

size_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  const size_t n = std::min(a.size(), b.size());
  return static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<int64_t>(n), b.begin()).first - a.begin());
}

}  // namespace

uint64_t PageTable::place(PageId parent, uint64_t root) {
  return parent == kNoPage ? mix(root) : mix(mix(root) + static_cast<uint64_t>(parent) + 1);
}

uint64_t PageTable::key(uint64_t place, std::span<const int32_t> tokens) {
  uint64_t hash = place;
  for (const int32_t token : tokens) {
    hash = mix(hash ^ static_cast<uint32_t>(token));
  }
  return hash;
}

int PageTable::holders(PageId id) const {
  return pages_[static_cast<size_t>(id)].holders;
}

bool PageTable::is_named(PageId id) const {
  return pages_[static_cast<size_t>(id)].named;
}

bool PageTable::is_whole(PageId id) const {
  return pages_[static_cast<size_t>(id)].whole;
}

uint64_t PageTable::named_at(PageId id) const {
  return pages_[static_cast<size_t>(id)].time;
}

void PageTable::set_thin(PageId id) {
  pages_[static_cast<size_t>(id)].whole = false;
}

void PageTable::set_whole(PageId id, uint64_t time) {
  pages_[static_cast<size_t>(id)].whole = true;
  pages_[static_cast<size_t>(id)].time = time;
}

PageId PageTable::take() {
  assert(free() > 0);
  give_up_surplus(1);
  if (unused_.empty()) {
    unused_.push_back(static_cast<PageId>(pages_.size()));
    pages_.emplace_back();
  }
  const PageId id = unused_.back();
  unused_.pop_back();
  Page& page = pages_[static_cast<size_t>(id)];
  page = Page();
  page.holders = 1;
  ++held_;
  return id;
}

void PageTable::hold(PageId id) {
  Page& page = pages_[static_cast<size_t>(id)];
  if (page.holders++ == 0) {
    kept_.erase(page.kept);
    ++held_;
  }
}

void PageTable::let_go(PageId id) {
  Page& page = pages_[static_cast<size_t>(id)];
  assert(page.holders > 0);
  if (--page.holders > 0) {
    return;
  }
  --held_;
  if (!page.named) {
    free_page(id);
    return;
  }
  page.kept = kept_.insert(kept_.end(), id);
  give_up_surplus(0);
}

// Of what nobody holds, when so many more pages are to be held.
void PageTable::give_up_surplus(int64_t coming) {
  const int64_t most = std::min(options_.limit, options_.alarm);
  while (kept() > options_.kept_limit || (kept() > 0 && held_ + kept() + coming > most)) {
    give_up_oldest();
  }
}

void PageTable::free_page(PageId id) {
  pages_[static_cast<size_t>(id)] = Page();
  unused_.push_back(id);
}

// Whoever holds a page holds those before it, and lets go of them later: an end comes first.
void PageTable::give_up_oldest() {
  if (options_.chains) {
    given_up_.push_back(described(kept_.front()));
  }
  forget(kept_.front());
}

PageChain PageTable::chain_before(const Page& page) const {
  return page.parent == kNoPage ? chain_root(page.root)
                                : pages_[static_cast<size_t>(page.parent)].chain;
}

GivenUpPage PageTable::described(PageId id) const {
  const Page& page = pages_[static_cast<size_t>(id)];
  return {id, chain_before(page), page.chain, page.tokens};
}

std::vector<GivenUpPage> PageTable::take_given_up() {
  return std::exchange(given_up_, {});
}

std::vector<GivenUpPage> PageTable::all_kept() const {
  std::vector<GivenUpPage> all;
  for (auto page = kept_.rbegin(); page != kept_.rend(); ++page) {
    all.push_back(described(*page));
  }
  return all;
}

void PageTable::forget(PageId id) {
  Page& page = pages_[static_cast<size_t>(id)];
  if (!page.named) {
    return;
  }
  // Those behind it too: their names would be another's when the id is used again.
  const uint64_t below = place(id, page.root);
  while (children_.contains(below)) {
    forget(children_.at(below).back());
  }
  const uint64_t at = place(page.parent, page.root);
  Children& children = children_.at(at);
  children.erase(std::find(children.begin(), children.end(), id));
  if (children.empty()) {
    children_.erase(at);
  }
  const auto [first, last] = names_.equal_range(key(at, page.tokens));
  names_.erase(std::find_if(first, last, [id](const auto& entry) { return entry.second == id; }));
  page.named = false;
  forgotten_.push_back(id);
  if (page.holders == 0) {
    kept_.erase(page.kept);
    free_page(id);
  }
}

void PageTable::forget_since(uint64_t time) {
  for (size_t i = 0; i < pages_.size(); ++i) {
    if (pages_[i].named && pages_[i].time >= time) {
      forget(static_cast<PageId>(i));
    }
  }
}

void PageTable::erase(uint64_t root, std::span<const int32_t> tokens, int64_t from) {
  const auto size = static_cast<size_t>(options_.page_tokens);
  std::vector<PageId> path = match(root, tokens, std::numeric_limits<uint64_t>::max()).path;
  const auto idle = [this](PageId id) { return holders(id) == 0; };
  // Ends in the middle of a page: what was left there, and no more than what is to go.
  const PageId last = path.empty() ? kNoPage : path.back();
  const std::span<const int32_t> rest = tokens.subspan(path.size() * size);
  const auto ends = children_.find(place(last, root));
  if (ends != children_.end()) {
    const Children children = ends->second;
    for (const PageId child : children) {
      const Page& page = pages_[static_cast<size_t>(child)];
      const size_t end = path.size() * size + page.tokens.size();
      const bool its = static_cast<int64_t>(end) > from && page.tokens.size() < size &&
                       page.tokens.size() <= rest.size() &&
                       common_prefix(page.tokens, rest) == page.tokens.size();
      if (its && idle(child)) {
        forget(child);
      }
    }
  }
  while (!path.empty() && static_cast<int64_t>(path.size() * size) > from && idle(path.back()) &&
         !children_.contains(place(path.back(), root))) {
    forget(path.back());
    path.pop_back();
  }
}

std::vector<PageId> PageTable::take_forgotten() {
  return std::exchange(forgotten_, {});
}

PageId PageTable::find(PageId parent, uint64_t root, std::span<const int32_t> tokens) const {
  const auto [first, last] = names_.equal_range(key(place(parent, root), tokens));
  for (auto entry = first; entry != last; ++entry) {
    const Page& page = pages_[static_cast<size_t>(entry->second)];
    if (page.parent == parent && page.root == root &&
        std::equal(page.tokens.begin(), page.tokens.end(), tokens.begin(), tokens.end())) {
      return entry->second;
    }
  }
  return kNoPage;
}

// The ends of earlier turns that the new page contains.
void PageTable::give_up_shorter(uint64_t place, std::span<const int32_t> tokens) {
  const auto found = children_.find(place);
  if (found == children_.end()) {
    return;
  }
  const Children children = found->second;
  const size_t first = children.size() > kMostCompared ? children.size() - kMostCompared : 0;
  for (size_t i = first; i < children.size(); ++i) {
    const Page& page = pages_[static_cast<size_t>(children[i])];
    if (page.holders == 0 && page.tokens.size() < tokens.size() &&
        common_prefix(page.tokens, tokens) == page.tokens.size()) {
      forget(children[i]);
    }
  }
}

PageId PageTable::name(
    PageId id, PageId parent, uint64_t root, std::span<const int32_t> tokens, uint64_t time) {
  if (pages_[static_cast<size_t>(id)].named) {
    return id;
  }
  const uint64_t at = place(parent, root);
  const PageId known = find(parent, root, tokens);
  if (known != kNoPage) {
    return known;
  }
  give_up_shorter(at, tokens);
  Page& page = pages_[static_cast<size_t>(id)];
  page.named = true;
  page.parent = parent;
  page.root = root;
  page.time = time;
  page.tokens.assign(tokens.begin(), tokens.end());
  if (options_.chains) {
    page.chain = chain_next(chain_before(page), tokens);
  }
  names_.emplace(key(at, tokens), id);
  children_[at].push_back(id);
  return id;
}

int64_t PageTable::usable(const std::vector<PageId>& path, int64_t tokens) const {
  std::vector<bool> whole;
  for (const PageId page : path) {
    whole.push_back(is_whole(page));
  }
  return usable_tokens(options_.reach, options_.page_tokens, whole, tokens);
}

PageMatch PageTable::match(uint64_t root, std::span<const int32_t> tokens, uint64_t now) const {
  PageMatch match;
  const auto size = static_cast<size_t>(options_.page_tokens);
  std::vector<PageId> path;
  PageId parent = kNoPage;
  size_t at = 0;
  while (at + size <= tokens.size()) {
    const PageId next = find(parent, root, tokens.subspan(at, size));
    if (next == kNoPage) {
      break;
    }
    if (pages_[static_cast<size_t>(next)].time == now) {
      match.growing = true;
      break;
    }
    path.push_back(next);
    parent = next;
    at += size;
  }
  // The start of some page that differs later.
  size_t most = 0;
  PageId partial = kNoPage;
  if (const auto found = children_.find(place(parent, root)); found != children_.end()) {
    const Children& children = found->second;
    const size_t compared = std::min(children.size(), kMostCompared);
    for (size_t i = 0; i < compared; ++i) {
      const PageId child = children[children.size() - 1 - i];
      const Page& page = pages_[static_cast<size_t>(child)];
      const size_t common = common_prefix(page.tokens, tokens.subspan(at));
      if (common > most && page.time != now && page.parent == parent && page.root == root) {
        most = common;
        partial = child;
      }
    }
  }
  match.path = path;
  auto length = static_cast<int64_t>(at);
  if (partial != kNoPage) {
    path.push_back(partial);
    length += static_cast<int64_t>(most);
  }
  match.known = length;
  length = usable(path, length);
  path.resize((static_cast<size_t>(length) + size - 1) / size);
  match.pages = std::move(path);
  match.tokens = length;
  return match;
}

}  // namespace quince
