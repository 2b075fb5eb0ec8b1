// Who of those that want one of a model's places gets the next one. A bounded number may wait.
//
// Higher priority comes first; among equals the tenant with the fewest running requests, then the
// one that was served longest ago; of one tenant's requests the oldest. When the queue is full,
// whoever has more than one waiting request more than the newcomer's tenant gives its newest one
// up, and lower priority gives way to higher: nobody can lock others out by filling the queue. Not
// for several threads at once.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace quince::gateway {

class FairQueue {
 public:
  using Ticket = uint64_t;

  FairQueue(int concurrency, int most_waiting)
      : concurrency_(concurrency), most_waiting_(most_waiting) {}

  // What came of a call: tickets whose place is there, and those that must go.
  struct Changes {
    std::vector<Ticket> granted;
    std::vector<Ticket> dropped;
  };
  Changes enter(Ticket ticket, const std::string& tenant, int priority);
  Changes leave(Ticket ticket);  // runs or waits; others are no mistake
  Changes resize(int concurrency, int most_waiting);

  int running() const {
    return static_cast<int>(running_.size());
  }
  int waiting() const {
    return static_cast<int>(waiting_.size());
  }

 private:
  struct Entry {
    Ticket ticket;
    std::string tenant;
    int priority;
  };
  struct Tenant {
    int running = 0;
    int waiting = 0;
    uint64_t served = 0;  // when it last got a place, in places given
  };

  void grant(Changes& changes);
  std::vector<Entry>::iterator next();
  std::vector<Entry>::iterator victim(const Entry& newcomer);
  void drop(std::vector<Entry>::iterator entry, Changes& changes);
  void forget(const std::string& tenant);

  int concurrency_;
  int most_waiting_;
  uint64_t given_ = 0;
  std::map<Ticket, std::string> running_;  // and their tenants
  std::vector<Entry> waiting_;             // in the order they came
  std::map<std::string, Tenant> tenants_;  // that run or wait
};

}  // namespace quince::gateway
