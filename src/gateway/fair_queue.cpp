#include "gateway/fair_queue.h"

#include <algorithm>
#include <tuple>

namespace quince::gateway {

FairQueue::Changes FairQueue::enter(Ticket ticket, const std::string& tenant, int priority) {
  Changes changes;
  Entry entry{ticket, tenant, priority};
  const bool full = running() >= concurrency_ && waiting() >= most_waiting_;
  if (full) {
    const auto weakest = victim(entry);
    if (weakest == waiting_.end()) {
      changes.dropped.push_back(ticket);
      return changes;
    }
    drop(weakest, changes);
  }
  ++tenants_[tenant].waiting;
  waiting_.push_back(std::move(entry));
  grant(changes);
  return changes;
}

FairQueue::Changes FairQueue::leave(Ticket ticket) {
  Changes changes;
  if (const auto found = running_.find(ticket); found != running_.end()) {
    const std::string tenant = found->second;
    running_.erase(found);
    --tenants_[tenant].running;
    forget(tenant);
  } else {
    const auto entry = std::find_if(
        waiting_.begin(), waiting_.end(), [&](const Entry& one) { return one.ticket == ticket; });
    if (entry != waiting_.end()) {
      drop(entry, changes);
      changes.dropped.clear();  // it knows
    }
  }
  grant(changes);
  return changes;
}

FairQueue::Changes FairQueue::resize(int concurrency, int most_waiting) {
  Changes changes;
  concurrency_ = concurrency;
  most_waiting_ = most_waiting;
  grant(changes);
  while (waiting() > most_waiting_) {
    drop(waiting_.end() - 1, changes);
  }
  return changes;
}

void FairQueue::grant(Changes& changes) {
  while (running() < concurrency_ && !waiting_.empty()) {
    const auto entry = next();
    Tenant& tenant = tenants_[entry->tenant];
    --tenant.waiting;
    ++tenant.running;
    tenant.served = ++given_;
    running_.emplace(entry->ticket, entry->tenant);
    changes.granted.push_back(entry->ticket);
    waiting_.erase(entry);
  }
}

std::vector<FairQueue::Entry>::iterator FairQueue::next() {
  const auto rank = [&](const Entry& entry) {
    const Tenant& tenant = tenants_.at(entry.tenant);
    return std::tuple(-entry.priority, tenant.running, tenant.served);
  };
  // The first of equals, so the one that came first.
  return std::min_element(waiting_.begin(), waiting_.end(), [&](const Entry& a, const Entry& b) {
    return rank(a) < rank(b);
  });
}

// Whose place in the queue the newcomer may have; end(): nobody's.
std::vector<FairQueue::Entry>::iterator FairQueue::victim(const Entry& newcomer) {
  auto weakest = waiting_.end();
  const auto rank = [&](const Entry& entry) {
    return std::tuple(entry.priority, -tenants_.at(entry.tenant).waiting);
  };
  for (auto entry = waiting_.begin(); entry != waiting_.end(); ++entry) {
    if (weakest == waiting_.end() || rank(*entry) <= rank(*weakest)) {
      weakest = entry;  // of equals the one that came last
    }
  }
  if (weakest == waiting_.end() || weakest->priority > newcomer.priority) {
    return waiting_.end();
  }
  const auto own = tenants_.find(newcomer.tenant);
  const int have = own == tenants_.end() ? 0 : own->second.waiting;
  const bool fairer = tenants_.at(weakest->tenant).waiting > have + 1;
  return weakest->priority < newcomer.priority || fairer ? weakest : waiting_.end();
}

void FairQueue::drop(std::vector<Entry>::iterator entry, Changes& changes) {
  const std::string tenant = entry->tenant;
  changes.dropped.push_back(entry->ticket);
  waiting_.erase(entry);
  --tenants_[tenant].waiting;
  forget(tenant);
}

void FairQueue::forget(const std::string& tenant) {
  const auto found = tenants_.find(tenant);
  if (found != tenants_.end() && found->second.running == 0 && found->second.waiting == 0) {
    tenants_.erase(found);
  }
}

}  // namespace quince::gateway
