#include "gateway/key_limits.h"

#include <algorithm>

namespace quince::gateway {

double TokenBucket::level(Time now) const {
  return std::min(capacity_, level_ + capacity_ / 60 * in_seconds(now - last_));
}

void TokenBucket::set(int64_t per_minute, Time now) {
  const auto capacity = static_cast<double>(per_minute);
  const double spent = capacity_ > 0 ? capacity_ - level(now) : 0;
  capacity_ = capacity;
  level_ = capacity - spent;
  last_ = now;
}

Clock::duration TokenBucket::wait(double count, Time now) const {
  const double missing = capacity_ > 0 ? std::min(count, capacity_) - level(now) : 0;
  // Less than a millionth is what adding up small numbers may leave.
  return missing > 1e-6 ? seconds(missing * 60 / capacity_) : Clock::duration::zero();
}

void TokenBucket::take(double count, Time now) {
  level_ = level(now) - count;
  last_ = now;
}

KeyLimits::KeyLimits(const KeyConfig& config, Time now)
    : concurrency_(config.concurrency), requests_(config.rpm, now), tokens_(config.tpm, now) {}

void KeyLimits::set(const KeyConfig& config, Time now) {
  concurrency_ = config.concurrency;
  requests_.set(config.rpm, now);
  tokens_.set(config.tpm, now);
}

std::optional<KeyLimits::Refusal> KeyLimits::begin(Time now) {
  if (concurrency_ > 0 && running_ >= concurrency_) {
    return Refusal{Reason::concurrency, std::chrono::seconds(1)};
  }
  if (const auto wait = requests_.wait(1, now); wait > Clock::duration::zero()) {
    return Refusal{Reason::requests, wait};
  }
  if (const auto wait = tokens_.wait(1, now); wait > Clock::duration::zero()) {
    return Refusal{Reason::tokens, wait};
  }
  requests_.take(1, now);
  ++running_;
  return std::nullopt;
}

void KeyLimits::end(int64_t tokens, Time now) {
  --running_;
  tokens_.take(static_cast<double>(tokens), now);
}

}  // namespace quince::gateway
