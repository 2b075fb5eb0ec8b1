// Pages that come from outside, and what is known of a prompt that nobody runs.
#include "engine/scheduler.h"

namespace quince {

// The chain holds the pages before it. False: there is no room for it, or they have no names.
bool Scheduler::take_in(
    SequenceId id,
    uint64_t root,
    const ArrivedPage& arrived,
    std::vector<PageId>& chain,
    std::vector<NamedPage>& taken) {
  const auto place = static_cast<size_t>(arrived.place);
  if (place < chain.size()) {  // a thin one becomes whole
    const PageId page = chain[place];
    if (arrived.whole && !pages_.is_whole(page)) {
      pages_.set_whole(page, step_);
      taken.push_back({id, arrived.place, page});
    }
    return true;
  }
  if (place > chain.size() || pages_.free() == 0) {
    return false;
  }
  const PageId parent = place == 0 ? kNoPage : chain[place - 1];
  if (parent != kNoPage && !pages_.is_named(parent)) {
    return false;
  }
  const PageId own = pages_.take();
  const PageId page = pages_.name(own, parent, root, arrived.tokens, step_);
  chain.push_back(page);
  if (page != own) {  // somebody computed it in the meantime
    pages_.let_go(own);
    pages_.hold(page);
    return true;
  }
  if (!arrived.whole) {
    pages_.set_thin(page);
  }
  taken.push_back({id, arrived.place, page});
  return true;
}

Scheduler::Remembered Scheduler::remember(uint64_t root, const std::vector<ArrivedPage>& pages) {
  Remembered out;
  for (const ArrivedPage& arrived : pages) {
    if (!take_in(0, root, arrived, out.held, out.taken)) {
      break;
    }
    // Known already, but windows have passed it since.
    const PageId page = out.held.back();
    if (arrived.whole && !pages_.is_whole(page)) {
      pages_.set_whole(page, step_);
      out.taken.push_back({0, arrived.place, page});
    }
  }
  return out;
}

void Scheduler::let_go(const std::vector<PageId>& held) {
  for (size_t i = held.size(); i-- > 0;) {
    pages_.let_go(held[i]);
  }
}

int64_t Scheduler::known_tokens(uint64_t root, std::span<const int32_t> tokens) const {
  return pages_.match(root, tokens, step_ + 1).tokens;
}

std::vector<PageId> Scheduler::known_pages(
    uint64_t root, std::span<const int32_t> tokens, uint64_t before) const {
  std::vector<PageId> path = pages_.match(root, tokens, step_ + 1).path;
  size_t count = 0;
  while (count < path.size() && pages_.named_at(path[count]) < before) {
    ++count;
  }
  path.resize(count);
  return path;
}

void Scheduler::erase(uint64_t root, std::span<const int32_t> tokens, int64_t from) {
  pages_.erase(root, tokens, from);
}

}  // namespace quince
