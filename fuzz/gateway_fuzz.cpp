// What a gateway reads: its configuration, bodies of requests, and what upstreams send. The first
// byte says which; where bytes come in pieces, also how large those are, and then the result must
// be that of all at once.
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/error.h"
#include "gateway/config.h"
#include "server/errors.h"
#include "server/upstream/event_frames.h"
#include "server/upstream/request_body.h"
#include "server/upstream/response_reader.h"

namespace {

using namespace quince;

void expect(bool holds, const char* what) {
  if (!holds) {
    throw std::logic_error(what);
  }
}

void read_config(std::string_view text) {
  try {
    gateway::parse_config(text, "fuzz");
  } catch (const UserError&) {
  }
}

void read_body(std::string_view text) {
  try {
    const server::RequestBody body = server::read_request_body(text);
    if (body.has_model || body.names_none) {
      std::string quoted = "\"m\"";
      const auto parts = body.with_model(text, quoted);
      std::string other;
      for (const std::string_view part : parts) {
        other += part;
      }
      expect(server::read_request_body(other).model == "m", "another model than was put there");
    }
  } catch (const server::ApiError&) {
  }
}

std::string frames(std::string_view bytes, size_t piece, int64_t& events) {
  server::EventFrames frames;
  std::string out;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    frames.add(bytes.substr(at, piece), out);
    expect(out == bytes.substr(0, out.size()), "an event was changed");
  }
  frames.finish(out);
  events = frames.events();
  return out;
}

void read_events(std::string_view bytes, size_t piece) {
  int64_t events = 0;
  int64_t at_once = 0;
  expect(
      frames(bytes, piece, events) == frames(bytes, bytes.size() + 1, at_once) && events == at_once,
      "pieces make other events");
}

std::string response(std::string_view bytes, size_t piece, bool& failed) {
  server::ResponseReader reader;
  boost::system::error_code error;
  std::string out;
  for (size_t at = 0; at < bytes.size() && !error && !reader.done(); at += piece) {
    reader.add(bytes.substr(at, piece), error);
    out += reader.take();
  }
  if (!error && !reader.done()) {
    reader.closed(error);
    out += reader.take();
  }
  failed = error.failed();
  return failed ? "" : out;
}

void read_response(std::string_view bytes, size_t piece) {
  bool failed = false;
  bool at_once = false;
  const std::string body = response(bytes, piece, failed);
  expect(
      response(bytes, bytes.size() + 1, at_once) == body && failed == at_once,
      "pieces make another response");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t piece = data[0] / 4 + 1;
  switch (data[0] % 4) {
    case 0:
      read_config(bytes);
      break;
    case 1:
      read_body(bytes);
      break;
    case 2:
      read_events(bytes, piece);
      break;
    default:
      read_response(bytes, piece);
  }
  return 0;
}
