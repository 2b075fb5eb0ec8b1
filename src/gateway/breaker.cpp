#include "gateway/breaker.h"

#include <algorithm>
#include <cmath>

namespace quince::gateway {

Breaker::State Breaker::state(Time now) const {
  return !opens_until_ ? State::closed : now < *opens_until_ ? State::open : State::half_open;
}

bool Breaker::allows(Time now) const {
  return !opens_until_ || (now >= *opens_until_ && !trying_);
}

Clock::duration Breaker::wait(Time now) const {
  return opens_until_ ? std::max(*opens_until_ - now, Clock::duration::zero())
                      : Clock::duration::zero();
}

Breaker::Era Breaker::begin(Time now) {
  trying_ = state(now) == State::half_open;
  return era_;
}

void Breaker::succeeded(Era era) {
  if (era != era_) {
    return;
  }
  failures_ = 0;
  if (opens_until_) {
    opens_until_.reset();
    openings_ = 0;
    trying_ = false;
    ++era_;
  }
}

void Breaker::failed(Era era, Time now) {
  if (era != era_) {
    return;
  }
  ++failures_;
  if (opens_until_ || failures_ >= config_.failures) {
    open(now);
  }
}

void Breaker::gave_up(Era era) {
  if (era == era_) {
    trying_ = false;
  }
}

void Breaker::looks_well(Time now) {
  if (state(now) == State::open) {
    opens_until_ = now;
  }
}

void Breaker::open(Time now) {
  constexpr int kMostDoublings = 30;
  const double span = std::min(
      config_.most_open, config_.open * std::ldexp(1.0, std::min(openings_, kMostDoublings)));
  opens_until_ = now + seconds(span);
  ++openings_;
  failures_ = 0;
  trying_ = false;
  ++era_;
}

}  // namespace quince::gateway
