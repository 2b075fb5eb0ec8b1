#include "gateway/gate.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "gateway/gate_state.h"
#include "gateway/secret.h"

namespace quince::gateway {

namespace {

constexpr double kBusyRetry = 1;  // seconds, where nothing tells how long it will take

std::string_view reason_text(KeyLimits::Reason reason) {
  switch (reason) {
    case KeyLimits::Reason::concurrency:
      return "concurrency";
    case KeyLimits::Reason::requests:
      return "rpm";
    case KeyLimits::Reason::tokens:
      return "tpm";
  }
  return "";
}

std::string refusal_text(const KeyConfig& key, KeyLimits::Reason reason) {
  switch (reason) {
    case KeyLimits::Reason::concurrency:
      return fmt::format(
          "the key '{}' may have {} requests at once; wait for one of them to end",
          key.name,
          key.concurrency);
    case KeyLimits::Reason::requests:
      return fmt::format("the key '{}' may ask {} times a minute; wait", key.name, key.rpm);
    case KeyLimits::Reason::tokens:
      return fmt::format("the key '{}' may use {} tokens a minute; wait", key.name, key.tpm);
  }
  return "";
}

}  // namespace

// Its methods lock; what stands in GateState does not.
struct Gate::Impl : GateState {
  Impl(Config config, Options options) : GateState(std::move(config), std::move(options)) {}

  class Use;
  class Spot;

  // Tells those whose place has changed, without the lock.
  void tell(const std::vector<std::shared_ptr<Waiter>>& changed) {
    for (const auto& waiter : changed) {
      waiter->changed();
    }
  }
};

class Gate::Impl::Use : public KeyUse {
 public:
  Use(std::shared_ptr<Impl> gate, std::shared_ptr<KeyState> key)
      : gate_(std::move(gate)), key_(std::move(key)) {}
  ~Use() override {
    Use::done();
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  const std::string& name() const override {
    static const std::string nobody;
    return key_ ? key_->config->name : nobody;
  }
  int priority() const override {
    return key_ ? key_->config->priority : 0;
  }
  void add(const TokenCount& tokens) override {
    if (key_) {
      const std::scoped_lock lock(gate_->mutex);
      spent_ += tokens.prompt + tokens.generated;
      key_->prompt_tokens += tokens.prompt;
      key_->generated_tokens += tokens.generated;
    }
  }
  void done() override {
    if (key_) {
      const std::scoped_lock lock(gate_->mutex);
      if (!std::exchange(done_, true)) {
        key_->limits.end(spent_, gate_->options.now());
      }
    }
  }

 private:
  std::shared_ptr<Impl> gate_;
  std::shared_ptr<KeyState> key_;
  int64_t spent_ = 0;
  bool done_ = false;
};

class Gate::Impl::Spot : public Place {
 public:
  Spot(
      std::shared_ptr<Impl> gate,
      std::shared_ptr<ModelState> model,
      FairQueue::Ticket ticket,
      std::shared_ptr<Waiter> waiter)
      : gate_(std::move(gate)),
        model_(std::move(model)),
        ticket_(ticket),
        waiter_(std::move(waiter)) {}
  ~Spot() override {
    std::vector<std::shared_ptr<Waiter>> changed;
    {
      const std::scoped_lock lock(gate_->mutex);
      model_->waiters.erase(ticket_);
      changed = GateState::apply(*model_, model_->queue.leave(ticket_));
    }
    gate_->tell(changed);
  }
  Spot(const Spot&) = delete;
  Spot& operator=(const Spot&) = delete;

  State state() const override {
    return waiter_->state;
  }

 private:
  std::shared_ptr<Impl> gate_;
  std::shared_ptr<ModelState> model_;
  FairQueue::Ticket ticket_;
  std::shared_ptr<Waiter> waiter_;
};

Gate::Gate(Config config, Options options)
    : impl_(std::make_shared<Impl>(std::move(config), std::move(options))) {}

Gate::~Gate() = default;

void Gate::reload(Config config) {
  std::vector<std::shared_ptr<Waiter>> changed;
  {
    const std::scoped_lock lock(impl_->mutex);
    changed = impl_->set(std::move(config));
  }
  impl_->tell(changed);
}

std::shared_ptr<const Config> Gate::config() const {
  const std::scoped_lock lock(impl_->mutex);
  return impl_->config;
}

std::shared_ptr<const KeyConfig> Gate::identify(std::string_view secret) const {
  const auto config = this->config();
  std::shared_ptr<const KeyConfig> found;
  for (const auto& [name, key] : config->keys) {  // all of them, whichever it is
    if (matches(secret, key.hash)) {
      found = std::shared_ptr<const KeyConfig>(config, &key);
    }
  }
  return found;
}

std::unique_ptr<KeyUse> Gate::use_key(const KeyConfig* key, const std::string& model) {
  if (key == nullptr) {
    return std::make_unique<Impl::Use>(impl_, nullptr);
  }
  const std::scoped_lock lock(impl_->mutex);
  const auto state = impl_->key(key->name);
  if (!state) {
    throw Refused(401, "invalid_api_key", "the API key is missing or wrong", {});
  }
  if (!state->config->may_use(model)) {
    ++state->refused["model"];
    throw Refused(
        403,
        "model_not_allowed",
        fmt::format("the key '{}' may not use the model '{}'", key->name, model),
        {});
  }
  if (const auto refusal = state->limits.begin(impl_->options.now())) {
    ++state->refused[std::string(reason_text(refusal->reason))];
    throw Refused(
        429,
        "rate_limit_exceeded",
        refusal_text(*state->config, refusal->reason),
        refusal->retry_after);
  }
  ++state->requests;
  return std::make_unique<Impl::Use>(impl_, state);
}

std::unique_ptr<Place> Gate::enter(
    const ModelConfig& model,
    const std::string& tenant,
    int priority,
    std::function<void()> changed) {
  auto waiter = std::make_shared<Waiter>(std::move(changed));
  std::vector<std::shared_ptr<Waiter>> others;
  std::unique_ptr<Place> place;
  {
    const std::scoped_lock lock(impl_->mutex);
    const auto state = impl_->model(model);
    const FairQueue::Ticket ticket = ++impl_->tickets;
    state->waiters[ticket] = waiter;
    others = GateState::apply(*state, state->queue.enter(ticket, tenant, priority));
    std::erase(others, waiter);
    place = std::make_unique<Impl::Spot>(impl_, state, ticket, waiter);
    if (waiter->state == Place::State::dropped) {
      ++state->refused;
    }
  }
  impl_->tell(others);
  if (place->state() == Place::State::dropped) {
    throw Refused(
        503,
        "queue_full",
        fmt::format(
            "'{}' answers {} requests at once and {} wait already; try again later",
            model.name,
            model.concurrency,
            model.queue),
        seconds(kBusyRetry));
  }
  return place;
}

std::optional<Choice> Gate::choose(const ModelConfig& model, const std::set<std::string>& tried) {
  const std::scoped_lock lock(impl_->mutex);
  const Time now = impl_->options.now();
  const auto candidates = impl_->candidates(model, tried, now);
  const auto chosen = impl_->model(model)->balancer.choose(model.balance, candidates);
  if (!chosen) {
    return std::nullopt;
  }
  const Target& target = model.upstreams[*chosen];
  const auto upstream = impl_->upstream(target.upstream);
  ++upstream->in_flight;
  upstream->budget.request(impl_->config->retry_share);
  return Choice{
      upstream,
      upstream->config,
      target.model.empty() ? model.name : target.model,
      upstream->breaker.begin(now)};
}

bool Gate::has_choice(const ModelConfig& model, const std::set<std::string>& tried) const {
  const std::scoped_lock lock(impl_->mutex);
  const auto candidates = impl_->candidates(model, tried, impl_->options.now());
  return std::any_of(
      candidates.begin(), candidates.end(), [](const Candidate& one) { return one.usable; });
}

void Gate::report(
    const Choice& choice, Outcome outcome, std::optional<Clock::duration> first_byte) {
  std::string line;
  {
    const std::scoped_lock lock(impl_->mutex);
    const auto& upstream = choice.state;  // also when it is no longer configured
    --upstream->in_flight;
    ++upstream->outcomes[outcome];
    if (first_byte) {
      upstream->first_bytes.add(in_seconds(*first_byte));
    }
    line = impl_->judge(*upstream, choice.era, outcome);
  }
  if (!line.empty()) {
    impl_->options.log(line);
  }
}

Clock::duration Gate::retry_after(const ModelConfig& model) const {
  const std::scoped_lock lock(impl_->mutex);
  const Time now = impl_->options.now();
  std::optional<Clock::duration> least;
  for (const Target& target : model.upstreams) {
    if (const auto upstream = impl_->upstream(target.upstream)) {
      const auto wait = upstream->breaker.wait(now);
      least = least ? std::min(*least, wait) : wait;
    }
  }
  return std::max(least.value_or(Clock::duration::zero()), seconds(kBusyRetry));
}

bool Gate::may_retry(const std::string& name) {
  const std::scoped_lock lock(impl_->mutex);
  const auto upstream = impl_->upstream(name);
  if (!upstream || !upstream->budget.allows()) {
    return false;
  }
  upstream->budget.take();
  ++upstream->retries;
  return true;
}

void Gate::fell_back(const std::string& from, const std::string& to) {
  const std::scoped_lock lock(impl_->mutex);
  ++impl_->fallbacks[{from, to}];
}

void Gate::checked(const std::string& name, bool well) {
  std::string line;
  {
    const std::scoped_lock lock(impl_->mutex);
    const auto upstream = impl_->upstream(name);
    if (!upstream) {
      return;
    }
    if (std::exchange(upstream->well, well) != well) {
      line =
          fmt::format("upstream {}: its health check {}", name, well ? "succeeds again" : "fails");
    }
    if (well) {
      upstream->breaker.looks_well(impl_->options.now());
    }
  }
  if (!line.empty()) {
    impl_->options.log(line);
  }
}

Breaker::State Gate::breaker(const std::string& name) const {
  const std::scoped_lock lock(impl_->mutex);
  const auto upstream = impl_->upstream(name);
  return upstream ? upstream->breaker.state(impl_->options.now()) : Breaker::State::closed;
}

std::string Gate::metrics_text() const {
  const std::scoped_lock lock(impl_->mutex);
  return impl_->metrics_text();
}

}  // namespace quince::gateway
