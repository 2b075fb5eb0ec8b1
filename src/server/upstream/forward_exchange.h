// A request's exchange with one upstream. Internal to forward*.cpp.
#pragma once

#include <memory>
#include <string>

#include "gateway/gate.h"
#include "server/upstream/forward.h"
#include "server/upstream/link.h"
#include "server/upstream/response_reader.h"

namespace quince::server {

// Whether an answer says, as the servers in use do, that the prompt does not fit.
bool says_too_long(int status, const std::string& body);

struct Forward::Exchange {
  Exchange(const gateway::Choice& choice, gateway::Time until) : choice(choice), until(until) {}

  const gateway::UpstreamConfig& upstream() const {
    return *choice.upstream;
  }
  // More of the response, within so many seconds; what is wrong, or "".
  Task<std::string> read(double seconds);

  const gateway::Choice& choice;
  gateway::Time until;         // of the whole exchange
  gateway::Time answer_until;  // for its first byte, where the model has a limit
  gateway::Time begun = gateway::Clock::now();
  std::shared_ptr<Link> link;
  ResponseReader reader;
  std::string wrong;  // the response is over: why
  std::optional<gateway::Clock::duration> first_byte;
  gateway::Outcome outcome = gateway::Outcome::broke;  // when sending failed
};

}  // namespace quince::server
