#include "gateway/gate_state.h"

#include <algorithm>

#include <fmt/format.h>

namespace quince::gateway {

namespace {

// Entries whose names the configuration no longer has go; those that use them keep them alive.
template <typename State, typename Configs>
void forget(std::map<std::string, std::shared_ptr<State>>& states, const Configs& configs) {
  std::erase_if(states, [&](const auto& entry) { return !configs.contains(entry.first); });
}

}  // namespace

void Seconds::add(double value) {
  for (size_t i = 0; i < kBounds.size(); ++i) {
    counts[i] += value <= kBounds[i] ? 1 : 0;
  }
  ++count;
  sum += value;
}

GateState::GateState(Config first, Gate::Options options) : options(std::move(options)) {
  set(std::move(first));
}

std::vector<std::shared_ptr<Waiter>> GateState::set(Config next) {
  const Time now = options.now();
  config = std::make_shared<const Config>(std::move(next));
  for (const auto& [name, key] : config->keys) {
    const std::shared_ptr<const KeyConfig> shared(config, &key);
    auto& state = keys_[name];
    if (!state) {
      state = std::make_shared<KeyState>(KeyState{shared, KeyLimits(key, now)});
    }
    state->config = shared;
    state->limits.set(key, now);
  }
  forget(keys_, config->keys);
  for (const auto& [name, upstream] : config->upstreams) {
    const std::shared_ptr<const UpstreamConfig> shared(config, &upstream);
    auto& state = upstreams_[name];
    if (!state || !(*state->config == upstream)) {  // another place: nothing is known of it
      state = std::make_shared<UpstreamState>(UpstreamState{shared, Breaker(upstream.breaker)});
    }
    state->config = shared;
    state->breaker.set(upstream.breaker);
  }
  forget(upstreams_, config->upstreams);
  forget(models_, config->models);
  std::vector<std::shared_ptr<Waiter>> changed;
  for (const auto& [name, model] : config->models) {
    const auto state = this->model(model);
    const auto more = apply(*state, state->queue.resize(model.concurrency, model.queue));
    changed.insert(changed.end(), more.begin(), more.end());
  }
  return changed;
}

std::vector<std::shared_ptr<Waiter>> GateState::apply(
    ModelState& model, const FairQueue::Changes& changes) {
  std::vector<std::shared_ptr<Waiter>> out;
  const auto settle = [&](const std::vector<FairQueue::Ticket>& tickets, Place::State state) {
    for (const FairQueue::Ticket ticket : tickets) {
      if (const auto found = model.waiters.find(ticket); found != model.waiters.end()) {
        found->second->state = state;
        out.push_back(std::move(found->second));
        model.waiters.erase(found);
      }
    }
  };
  settle(changes.granted, Place::State::granted);
  settle(changes.dropped, Place::State::dropped);
  return out;
}

std::shared_ptr<KeyState> GateState::key(const std::string& name) const {
  const auto found = keys_.find(name);
  return found == keys_.end() ? nullptr : found->second;
}

std::shared_ptr<UpstreamState> GateState::upstream(const std::string& name) const {
  const auto found = upstreams_.find(name);
  return found == upstreams_.end() ? nullptr : found->second;
}

std::shared_ptr<ModelState> GateState::model(const ModelConfig& config) {
  auto& state = models_[config.name];
  if (!state) {
    state = std::make_shared<ModelState>(
        ModelState{FairQueue(config.concurrency, config.queue), {}, {}, 0});
  }
  return state;
}

std::vector<Candidate> GateState::candidates(
    const ModelConfig& model, const std::set<std::string>& tried, Time now) const {
  std::vector<Candidate> out;
  for (const Target& target : model.upstreams) {
    Candidate candidate{target.weight};
    if (const auto state = upstream(target.upstream)) {
      candidate.in_flight = state->in_flight;
      candidate.usable =
          !tried.contains(target.upstream) && state->well && state->breaker.allows(now);
    }
    out.push_back(candidate);
  }
  return out;
}

std::string GateState::judge(UpstreamState& upstream, Breaker::Era era, Outcome outcome) const {
  const Time now = options.now();
  const Breaker::State before = upstream.breaker.state(now);
  switch (health(outcome)) {
    case Health::good:
      upstream.breaker.succeeded(era);
      break;
    case Health::bad:
      upstream.breaker.failed(era, now);
      break;
    case Health::unknown:
      upstream.breaker.gave_up(era);
      break;
  }
  const Breaker::State after = upstream.breaker.state(now);
  const std::string& name = upstream.config->name;
  if (after == before) {
    return "";
  }
  if (after == Breaker::State::open) {
    return fmt::format(
        "upstream {}: fails, and is left alone for {:.3g} s",
        name,
        in_seconds(upstream.breaker.wait(now)));
  }
  return after == Breaker::State::closed ? fmt::format("upstream {}: answers again", name) : "";
}

}  // namespace quince::gateway
