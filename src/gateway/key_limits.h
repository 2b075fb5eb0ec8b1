// What a key may do at once and in a minute. Rates are token buckets as large as a minute's
// allowance: a key that was quiet may spend it at once, and then gets it back evenly. What a
// request costs in tokens is known only when it has ended, so one may begin while anything is left,
// and what it then took beyond that is paid back first. Not for several threads at once.
#pragma once

#include <cstdint>
#include <optional>

#include "gateway/clock.h"
#include "gateway/config.h"

namespace quince::gateway {

class TokenBucket {
 public:
  // per_minute 0: no limit.
  TokenBucket(int64_t per_minute, Time now) {
    set(per_minute, now);
  }

  void set(int64_t per_minute, Time now);  // what was spent stays spent
  // Until at least `count` is there; zero: it is.
  Clock::duration wait(double count, Time now) const;
  void take(double count, Time now);

 private:
  double level(Time now) const;

  double capacity_ = 0;  // and what comes back in a minute; 0: no limit
  double level_ = 0;     // at last_; below zero: to be paid back
  Time last_;
};

class KeyLimits {
 public:
  KeyLimits(const KeyConfig& config, Time now);

  void set(const KeyConfig& config, Time now);
  enum class Reason { concurrency, requests, tokens };
  struct Refusal {
    Reason reason;
    Clock::duration retry_after;
  };
  // Nothing: the request may begin, and end() must be called once.
  std::optional<Refusal> begin(Time now);
  void end(int64_t tokens, Time now);
  int running() const {
    return running_;
  }

 private:
  int concurrency_ = 0;
  int running_ = 0;
  TokenBucket requests_;
  TokenBucket tokens_;
};

}  // namespace quince::gateway
