// What a Gate remembers. Without locks: the Gate has one. Internal to gate*.cpp.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gateway/balance.h"
#include "gateway/breaker.h"
#include "gateway/fair_queue.h"
#include "gateway/gate.h"
#include "gateway/key_limits.h"
#include "gateway/retry.h"

namespace quince::gateway {

// A histogram of seconds.
struct Seconds {
  static constexpr std::array<double, 14> kBounds = {
      0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60};
  std::array<uint64_t, kBounds.size()> counts{};  // at most the bound
  uint64_t count = 0;
  double sum = 0;

  void add(double value);
};

struct KeyState {
  std::shared_ptr<const KeyConfig> config;
  KeyLimits limits;
  uint64_t requests = 0;
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  std::map<std::string, uint64_t> refused = {};  // by reason
};

struct UpstreamState {
  std::shared_ptr<const UpstreamConfig> config;
  Breaker breaker;
  RetryBudget budget = {};
  bool well = true;  // says the health check
  int in_flight = 0;
  uint64_t retries = 0;
  std::map<Outcome, uint64_t> outcomes = {};
  Seconds first_bytes = {};
};

struct Waiter {
  explicit Waiter(std::function<void()> changed) : changed(std::move(changed)) {}
  const std::function<void()> changed;
  std::atomic<Place::State> state = Place::State::waiting;
};

struct ModelState {
  FairQueue queue;
  Balancer balancer;
  std::map<FairQueue::Ticket, std::shared_ptr<Waiter>> waiters;
  uint64_t refused = 0;
};

class GateState {
 public:
  GateState(Config first, Gate::Options options);

  // Those whose places changed are to be told.
  std::vector<std::shared_ptr<Waiter>> set(Config next);
  // Sets the states of those concerned, and returns them.
  static std::vector<std::shared_ptr<Waiter>> apply(
      ModelState& model, const FairQueue::Changes& changes);

  std::shared_ptr<KeyState> key(const std::string& name) const;            // null: none
  std::shared_ptr<UpstreamState> upstream(const std::string& name) const;  // null: none
  std::shared_ptr<ModelState> model(const ModelConfig& config);
  std::vector<Candidate> candidates(
      const ModelConfig& model, const std::set<std::string>& tried, Time now) const;
  // Tells the breaker; the line to log, or "".
  std::string judge(UpstreamState& upstream, Breaker::Era era, Outcome outcome) const;
  std::string metrics_text() const;

  Gate::Options options;
  mutable std::mutex mutex;
  std::shared_ptr<const Config> config;
  FairQueue::Ticket tickets = 0;
  std::map<std::pair<std::string, std::string>, uint64_t> fallbacks;

 private:
  std::map<std::string, std::shared_ptr<KeyState>> keys_;
  std::map<std::string, std::shared_ptr<UpstreamState>> upstreams_;
  std::map<std::string, std::shared_ptr<ModelState>> models_;
};

}  // namespace quince::gateway
