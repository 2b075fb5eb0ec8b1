// What is done when an attempt to have a request answered has ended. Nothing has been sent to the
// client by then but where the outcome says so.
#pragma once

#include "gateway/clock.h"
#include "gateway/config.h"

namespace quince::gateway {

enum class Outcome {
  answered,      // the client has the answer
  client_error,  // the request is at fault (4xx): the client is told as the upstream said it
  too_long,      // its prompt does not fit the context
  not_reached,   // no connection, or one that was closed before the request could be there
  unavailable,   // 429, 502, 503, 504: it says itself that it did not do it
  failed,        // 500 and the like
  refused_us,    // 401, 403: the gateway's own key is wrong
  broke,         // closed, silent for too long, or not HTTP, before an answer had begun
  slow,          // no answer had begun within the model's latency_limit
  died,          // in the middle of an answer that the client has part of
  abandoned,     // the client went away, or its time was over
};

// How the breaker sees it.
enum class Health { good, bad, unknown };
Health health(Outcome outcome);

enum class Step { done, retry, fall_back, give_up };

struct Situation {
  int retries_left = 0;           // of the request
  bool within_budget = false;     // of the upstream: see RetryBudget
  bool another_upstream = false;  // that may be asked for the same model
  bool fallback_left = false;
};

// Only what surely was not worked on is tried again as it is; a fallback, which somebody chose for
// such cases, also follows what may have been.
Step next_step(Outcome outcome, const Situation& situation, const ModelConfig& model);

// So that retries do not finish off upstreams that are overloaded: a share of the requests, and a
// few at any time. Not for several threads at once.
class RetryBudget {
 public:
  void request(double share);  // one was sent
  bool allows() const {
    return tokens_ >= 1;
  }
  void take() {
    tokens_ -= 1;
  }

 private:
  static constexpr double kMost = 10;
  double tokens_ = kMost;
};

}  // namespace quince::gateway
