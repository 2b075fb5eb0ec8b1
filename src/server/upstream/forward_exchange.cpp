// Forward's side to the upstreams.
#include "server/upstream/forward_exchange.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "server/http_text.h"
#include "server/upstream/passed_headers.h"

namespace quince::server {

namespace json = boost::json;
using gateway::Outcome;

bool says_too_long(int status, const std::string& body) {
  if (status != 400 && status != 413 && status != 422) {
    return false;
  }
  for (const std::string_view mark :
       {"context_length_exceeded",
        "exceed_context_size_error",
        "maximum context length",
        "context window",
        "prompt is too long",
        "exceeds the available context size"}) {
    if (body.find(mark) != std::string::npos) {
      return true;
    }
  }
  return false;
}

namespace {

constexpr size_t kMostBody = size_t{256} << 20;  // of an answer that is no stream
constexpr size_t kMostErrorBody = size_t{1} << 20;

// What an error's body says, cut short; "": nothing that can be read.
std::string message_in(const std::string& body) {
  boost::system::error_code bad;
  const json::value value = json::parse(body, bad);
  const json::object* object = bad ? nullptr : value.if_object();
  const json::value* error = object == nullptr ? nullptr : object->if_contains("error");
  if (error != nullptr && error->is_object()) {
    object = error->if_object();
    error = nullptr;
  }
  if (error == nullptr && object != nullptr) {
    error = object->if_contains("message");
  }
  std::string text = error != nullptr && error->is_string() ? std::string(error->get_string()) : "";
  text.resize(std::min<size_t>(text.size(), 500));
  return text;
}

bool is_json(const std::string& body) {
  boost::system::error_code bad;
  const json::value value = json::parse(body, bad);
  return !bad && value.is_object();
}

double retry_after_of(const ResponseReader& reader) {
  const std::string_view text = reader.header("Retry-After");
  int seconds = 0;  // a date counts as nothing said
  std::from_chars(text.data(), text.data() + text.size(), seconds);
  return std::clamp(seconds, 1, 3600);
}

std::string_view media_type(const ResponseReader& reader) {
  const std::string_view type = reader.header("Content-Type");
  return type.substr(0, std::min(type.find_first_of("; "), type.size()));
}

}  // namespace

Task<std::string> Forward::Exchange::read(double seconds) {
  if (!wrong.empty()) {
    co_return wrong;  // it came with something good, which was to be looked at first
  }
  const auto at = gateway::Clock::now() + gateway::seconds(seconds);
  link->set_deadline(std::min(at, until));
  std::string bytes;
  boost::system::error_code error = co_await link->read(bytes);
  if (!bytes.empty() || !error) {
    boost::system::error_code bad;
    reader.add(bytes, bad);
    if (bad) {
      wrong = "what it sent is no good HTTP (" + bad.message() + ")";
      co_return wrong;
    }
  }
  if (error && !reader.done()) {
    boost::system::error_code unfinished;
    if (error == asio::error::eof && !link->timed_out()) {
      reader.closed(unfinished);
    } else {
      unfinished = error;
    }
    wrong = unfinished ? error_text(*link, error) : "";
  }
  co_return wrong;
}

Outcome Forward::broken(const Exchange& exchange, const std::string& what) {
  const bool slow = exchange.link && exchange.link->timed_out();
  fail(
      slow ? 504 : 502,
      late() ? fmt::format(
                   "the upstream {} had not answered when the request's time was over",
                   exchange.upstream().name)
             : fmt::format("the upstream {} gave no answer: {}", exchange.upstream().name, what),
      slow ? "upstream_timeout" : "upstream_error");
  const bool limit = slow && gateway::Clock::now() >= exchange.answer_until && !late();
  return limit ? Outcome::slow : Outcome::broke;
}

Task<Forward::Attempt> Forward::attempt(
    const gateway::Choice& choice, const gateway::ModelConfig& model) {
  const auto now = gateway::Clock::now();
  Exchange exchange(
      choice, std::min(until_, now + gateway::seconds(choice.upstream->total_timeout)));
  exchange.answer_until =
      model.latency_limit > 0 ? now + gateway::seconds(model.latency_limit) : gateway::Time::max();
  Attempt attempt;
  if (!co_await send(exchange)) {
    attempt.outcome = exchange.outcome;
  } else {
    const int status = exchange.reader.status();
    const bool stream = status >= 200 && status < 300 &&
                        same_word(media_type(exchange.reader), "text/event-stream");
    attempt.outcome = stream ? co_await pass_stream(exchange) : co_await pass_whole(exchange);
  }
  attempt.first_byte = exchange.first_byte;
  link_ = nullptr;
  if (exchange.link) {
    LinkPool* pool = hub_.pool(exchange.upstream());
    if (exchange.reader.keeps_alive() && !cancelled_ && pool != nullptr) {
      pool->give(std::move(exchange.link));
    } else {
      exchange.link->close();
    }
  }
  co_return attempt;
}

// A connection that was kept may be closed by the other side at the very moment at which it is used
// again: then the request has not been looked at, and a fresh connection is tried.
Task<bool> Forward::send(Exchange& exchange) {
  while (!cancelled_) {
    const std::shared_ptr<Link> link = co_await connect(exchange);
    if (!link) {
      co_return false;
    }
    if (co_await send_once(exchange, *link)) {
      co_return true;
    }
    const bool stale = link->reused && !exchange.first_byte && !link->timed_out();
    if (!stale) {
      co_return false;
    }
    link->close();
    exchange.reader = {};
    exchange.wrong.clear();
  }
  exchange.outcome = Outcome::abandoned;
  co_return false;
}

Task<std::shared_ptr<Link>> Forward::connect(Exchange& exchange) {
  const gateway::UpstreamConfig& upstream = exchange.upstream();
  LinkPool* pool = hub_.pool(upstream);
  exchange.outcome = Outcome::not_reached;
  if (pool == nullptr) {
    fail(
        502,
        fmt::format("the upstream {} is no longer configured", upstream.name),
        "upstream_error");
    co_return nullptr;
  }
  exchange.link = link_ = pool->take();
  if (link_) {
    co_return link_;
  }
  const std::shared_ptr<Link> link = exchange.link = link_ = pool->make();
  const auto in_time = gateway::Clock::now() + gateway::seconds(upstream.connect_timeout);
  link->set_deadline(std::min({in_time, exchange.until, exchange.answer_until}));
  const auto error = co_await link->open(upstream);
  if (error || cancelled_) {
    const bool limit = link->timed_out() && gateway::Clock::now() >= exchange.answer_until;
    fail(
        502,
        fmt::format(
            "the upstream {} cannot be reached: {}", upstream.name, error_text(*link, error)),
        "upstream_unreachable");
    exchange.outcome = limit ? Outcome::slow : Outcome::not_reached;
    link->close();
    co_return nullptr;
  }
  co_return link;
}

// Until the response's head is there.
Task<bool> Forward::send_once(Exchange& exchange, Link& link) {
  const gateway::UpstreamConfig& upstream = exchange.upstream();
  std::string quoted = json::serialize(json::string(exchange.choice.model));
  const auto body = job_.body.with_model(job_.request.body, quoted);
  const size_t length = body[0].size() + body[1].size() + body[2].size();
  const std::string head = request_head(job_.request, upstream, length);
  const std::array<std::string_view, 4> parts{head, body[0], body[1], body[2]};
  const auto in_time = gateway::Clock::now() + gateway::seconds(upstream.first_byte_timeout);
  link.set_deadline(std::min({in_time, exchange.until, exchange.answer_until}));
  // An error here may be followed by an answer: to a request that was too large, for instance.
  const auto unsent = co_await link.write(parts);
  std::string wrong;
  while (wrong.empty() && !exchange.reader.has_header() && !exchange.reader.done()) {
    const auto left = std::min({in_time, exchange.answer_until}) - gateway::Clock::now();
    wrong = co_await exchange.read(gateway::in_seconds(left));
  }
  if (exchange.reader.has_header()) {
    exchange.first_byte = gateway::Clock::now() - exchange.begun;
    co_return true;
  }
  exchange.outcome = broken(exchange, unsent ? error_text(link, unsent) : wrong);
  co_return false;
}

Task<Outcome> Forward::pass_whole(Exchange& exchange) {
  const int status = exchange.reader.status();
  const size_t most = status < 300 ? kMostBody : kMostErrorBody;
  std::string body;
  while (true) {
    body += exchange.reader.take();
    if (body.size() > most) {
      co_return broken(exchange, "its answer is too large");
    }
    if (exchange.reader.done()) {
      co_return judge(exchange, std::move(body));
    }
    const std::string wrong = co_await exchange.read(exchange.upstream().idle_timeout);
    if (!wrong.empty()) {
      co_return broken(exchange, wrong);
    }
  }
}

// Of a whole answer: the client gets it, or what error_ then says.
Outcome Forward::judge(const Exchange& exchange, std::string body) {
  const int status = exchange.reader.status();
  const std::string& name = exchange.upstream().name;
  const auto said = [&] {
    const std::string message = message_in(body);
    return message.empty() ? "" : ": " + message;
  };
  if (status == 401 || status == 403) {
    fail(
        502,
        fmt::format("the upstream {} does not accept the gateway's key", name),
        "upstream_key");
    return Outcome::refused_us;
  }
  if (status == 429 || (status >= 502 && status <= 504)) {
    fail(
        status == 429 ? 429 : 503,
        fmt::format("the upstream {} takes no requests now ({}){}", name, status, said()),
        "upstream_busy",
        retry_after_of(exchange.reader));
    return Outcome::unavailable;
  }
  if (status >= 500 || status < 200 || (status >= 300 && status < 400)) {
    fail(502, fmt::format("the upstream {} answered {}{}", name, status, said()), "upstream_error");
    return Outcome::failed;
  }
  const bool too_long = says_too_long(status, body);
  Response response;
  response.status = status;
  response.headers = response_headers(exchange.reader);
  response.content_type = std::string(exchange.reader.header("Content-Type"));
  if (status < 300) {
    count_whole(body);
  } else if (!is_json(body)) {
    fail(status, fmt::format("the upstream {} answered {}", name, status), "upstream_error");
    body = json::serialize(error_json(error_, style_));
    response.content_type = "application/json";
  }
  if (response.content_type.empty()) {
    response.content_type = "application/json";
  }
  response.body = std::move(body);
  if (too_long) {
    refusal_ = std::move(response);  // unless another model can
    return Outcome::too_long;
  }
  finish(std::move(response));
  return status < 300 ? Outcome::answered : Outcome::client_error;
}

}  // namespace quince::server
