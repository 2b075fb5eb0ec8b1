// Keeps requests away from an upstream that fails. Closed: all may go there. After so many failures
// one after another it opens: none may. When its time is over it is half open: one request may try;
// if that succeeds it closes, if it fails it opens again for twice as long. Not for several threads
// at once.
#pragma once

#include <cstdint>
#include <optional>

#include "gateway/clock.h"
#include "gateway/config.h"

namespace quince::gateway {

class Breaker {
 public:
  explicit Breaker(const BreakerConfig& config) : config_(config) {}
  void set(const BreakerConfig& config) {
    config_ = config;
  }

  enum class State { closed, half_open, open };
  State state(Time now) const;
  bool allows(Time now) const;
  // How long until it may; zero: it does, or a trial is under way.
  Clock::duration wait(Time now) const;

  // A request that goes there belongs to an era; word of one from an earlier era means nothing.
  // Only while it allows.
  using Era = uint64_t;
  Era begin(Time now);
  void succeeded(Era era);
  void failed(Era era, Time now);
  void gave_up(Era era);  // the request ended without telling anything
  // A health check found it well: an open one may be tried at once.
  void looks_well(Time now);

 private:
  void open(Time now);

  BreakerConfig config_;
  Era era_ = 0;
  int failures_ = 0;  // one after another
  int openings_ = 0;  // since it was last closed
  bool trying_ = false;
  std::optional<Time> opens_until_;  // absent: closed
};

}  // namespace quince::gateway
