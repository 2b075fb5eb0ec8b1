// Which pages of keys and values exist, who holds them, and what they are remembered as. Pure
// policy: ids and tokens; no MLX, no clock, no memory of its own behind the pages. One thread.
//
// A page is a stretch of page_tokens positions. Sequences hold pages; a page that nobody holds is
// kept, if it has a name, until its room is needed (least recently used first), else it is free:
// held + kept + free = limit at any time. A page's name is the page before it and its own tokens,
// so names form a tree with a root for each (model, adapter), and a prompt is looked up by walking
// down. Tokens are compared, not only their hash: no answer is ever continued from another's text.
#pragma once

#include <cstdint>
#include <limits>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

#include "cache/page.h"
#include "cache/page_chain.h"

namespace quince {

using PageId = int32_t;
constexpr PageId kNoPage = -1;

struct PageTableOptions {
  int page_tokens = kCachePage;
  int64_t limit = std::numeric_limits<int64_t>::max();       // pages, held and kept
  int64_t kept_limit = std::numeric_limits<int64_t>::max();  // pages that nobody holds
  // What nobody holds never brings the pages in all above this: see memory_ladder.h.
  int64_t alarm = std::numeric_limits<int64_t>::max();
  CacheReach reach;
  bool chains = false;  // pages get names for outside too, and given_up() tells them
};

// A page that had to make room for others, as it is known outside.
struct GivenUpPage {
  PageId id = kNoPage;
  PageChain before;
  PageChain name;
  std::vector<int32_t> tokens;
};

struct PageMatch {
  std::vector<PageId> path;   // all full pages that are known, thin ones too
  std::vector<PageId> pages;  // from the first position; the last one may serve in part
  int64_t tokens = 0;
  int64_t known = 0;     // tokens that the tree knows, of which `tokens` can be gone on from
  bool growing = false;  // it would go on in a page that gets its name at this very time
};

class PageTable {
 public:
  explicit PageTable(const PageTableOptions& options) : options_(options) {}

  int64_t held() const {
    return held_;
  }
  int64_t kept() const {
    return static_cast<int64_t>(kept_.size());
  }
  int64_t free() const {  // that can be had, now or by giving up what is kept
    return options_.limit - held_;
  }

  // A nameless page with one holder. free() > 0.
  PageId take();
  void hold(PageId id);
  void let_go(PageId id);
  int holders(PageId id) const;
  bool is_named(PageId id) const;

  // Names a page. tokens: at most page_tokens. Returns the page of that name: another one when it
  // exists already. A page keeps its first name. time: of planning, never decreasing.
  PageId name(
      PageId id, PageId parent, uint64_t root, std::span<const int32_t> tokens, uint64_t time);
  // The longest prefix of tokens whose keys and values exist and can be gone on from. Pages named
  // at `now` are being computed and do not count.
  PageMatch match(uint64_t root, std::span<const int32_t> tokens, uint64_t now) const;

  // Layers with a window have forgotten the page; or have it again, as if it had been named now.
  void set_thin(PageId id);
  void set_whole(PageId id, uint64_t time);
  bool is_whole(PageId id) const;
  uint64_t named_at(PageId id) const;  // or made whole again
  // Takes names back: of pages whose computing has failed, and of all behind them.
  void forget(PageId id);
  void forget_since(uint64_t time);
  // And of what is known of these tokens, but for pages of the first `from`, those that somebody
  // holds, and those that something else goes on from.
  void erase(uint64_t root, std::span<const int32_t> tokens, int64_t from);
  // Pages that lost their name since the last call.
  std::vector<PageId> take_forgotten();
  // Of these, what was good and had to go for lack of room, with options.chains.
  std::vector<GivenUpPage> take_given_up();
  // What nobody holds, in the same form, the most recently used first.
  std::vector<GivenUpPage> all_kept() const;

 private:
  struct Page {
    int holders = 0;
    bool named = false;
    bool whole = true;
    PageId parent = kNoPage;
    uint64_t root = 0;
    uint64_t time = 0;
    std::vector<int32_t> tokens;
    PageChain chain;                   // with options.chains
    std::list<PageId>::iterator kept;  // when nobody holds it and it has a name
  };
  using Children = std::vector<PageId>;

  static uint64_t place(PageId parent, uint64_t root);
  static uint64_t key(uint64_t place, std::span<const int32_t> tokens);
  PageId find(PageId parent, uint64_t root, std::span<const int32_t> tokens) const;
  void free_page(PageId id);
  void give_up_oldest();
  void give_up_surplus(int64_t coming);
  PageChain chain_before(const Page& page) const;
  GivenUpPage described(PageId id) const;
  void give_up_shorter(uint64_t place, std::span<const int32_t> tokens);
  int64_t usable(const std::vector<PageId>& path, int64_t tokens) const;

  PageTableOptions options_;
  std::vector<Page> pages_;
  std::vector<PageId> unused_;  // ids
  int64_t held_ = 0;
  std::list<PageId> kept_;                           // least recently used first
  std::unordered_multimap<uint64_t, PageId> names_;  // by key()
  std::unordered_map<uint64_t, Children> children_;  // by place(), in order of naming
  std::vector<PageId> forgotten_;
  std::vector<GivenUpPage> given_up_;
};

}  // namespace quince
