// A stream of server-sent events on its way through: whole events go on, so that the end of a
// stream that breaks off never is half an event; and tokens are counted on the way.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <boost/json.hpp>

#include "gateway/gate.h"

namespace quince::server {

// Tokens as the three APIs report them: an object with "usage", or with one that has it.
void read_usage(const boost::json::object& message, gateway::TokenCount& count, bool& found);
// Of a whole answer; false: it says nothing.
bool read_usage(std::string_view body, gateway::TokenCount& count);

class EventFrames {
 public:
  // Appends to out what may go on now.
  void add(std::string_view bytes, std::string& out);
  // The stream has ended as it should: the rest. When it broke off it is thrown away.
  void finish(std::string& out);

  int64_t events() const {  // with data
    return events_;
  }
  // Of the last event that has one (the Responses API); -1: none.
  int64_t sequence_number() const {
    return sequence_number_;
  }
  bool has_usage() const {
    return has_usage_;
  }
  const gateway::TokenCount& usage() const {
    return usage_;
  }
  bool done() const {  // the event that ends a stream was there
    return done_;
  }

 private:
  void look_at(std::string_view event);

  std::string held_;     // an event's beginning
  size_t searched_ = 0;  // of it
  int64_t events_ = 0;
  int64_t sequence_number_ = -1;
  bool has_usage_ = false;
  bool done_ = false;
  gateway::TokenCount usage_;
};

}  // namespace quince::server
