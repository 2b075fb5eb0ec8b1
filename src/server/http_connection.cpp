#include "server/http_connection.h"

#include <algorithm>

#include <fmt/format.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/http/read.hpp>

#include "server/http_text.h"
#include "server/http_tls.h"

namespace quince::server {

namespace http = beast::http;

namespace {

// What every response begins with.
constexpr std::string_view kVersion = "HTTP/1.1 ";

// Something came, and it is wrong or ends too early; not: nothing came.
bool is_bad_http(const boost::system::error_code& error) {
  return error.category() == http::make_error_code(http::error::bad_method).category() &&
         error != http::error::end_of_stream;
}

std::string what_is_wrong(const boost::system::error_code& error) {
  return error == http::error::partial_message ? "it ends too early" : error.message();
}

std::string too_slow(std::string_view what, std::chrono::milliseconds limit) {
  return fmt::format("the request's {} did not come within {} s", what, limit.count() / 1000.0);
}

}  // namespace

Connection::Connection(Socket socket, Shared& shared)
    : counted_(shared),
      shared_(shared),
      stream_(std::move(socket), shared.tls.current()),
      wake_timer_(stream_.get_executor()),
      guard_timer_(stream_.get_executor()) {}

void Connection::start() {
  const auto keep = [self = shared_from_this()](const std::exception_ptr&) {};
  asio::co_spawn(stream_.get_executor(), run(), keep);
  asio::co_spawn(stream_.get_executor(), guard(), keep);
}

Task<void> Connection::run() {
  const auto self = shared_from_this();
  if (!stream_.secure() || co_await shake_hands()) {
    while (stream_.socket().is_open() && co_await await_request() && co_await serve()) {
    }
  }
  co_await linger();
  close();
}

// False: the connection ends.
Task<bool> Connection::shake_hands() {
  set_deadline(shared_.options.header_time);
  const auto error = co_await stream_.shake_hands();
  secured_ = !error;
  if (is_plain_http(error)) {  // in words that its client understands
    const Response refused =
        shared_.handler.error(400, "this port wants HTTPS: use https:// in its address", {});
    boost::system::error_code ignored;
    static_cast<void>(stream_.socket().send(
        asio::buffer(response_head(refused, Framing::length, false) + refused.body), 0, ignored));
  }
  co_return secured_;
}

// Until there is something of the next request.
Task<bool> Connection::await_request() {
  const bool begun = buffer_.size() > 0;
  idle_ = true;  // until the request's head is there: half of one is nothing to wait for
  if (!begun && (shared_.draining || ended_)) {
    co_return false;
  }
  set_deadline(shared_.options.idle_time);
  if (begun) {  // the next request is there already, so a read under way may never end
    co_await end_watching();
  }
  while (watching_) {
    co_await wait(Clock::time_point::max());
  }
  if (buffer_.size() == 0) {
    buffer_.shrink_to_fit();  // an idle connection holds no memory
    boost::system::error_code error;
    if (stream_.secure()) {  // bytes may be there that the socket knows nothing of
      buffer_.commit(co_await stream_.async_read_some(buffer_.prepare(kReadAtOnce), to(error)));
    } else {
      co_await stream_.socket().async_wait(Socket::wait_read, to(error));
    }
    if (error) {
      co_return false;
    }
  }
  co_return stream_.socket().is_open();
}

Connection::Head Connection::head_of(const Parser& parser) {
  Head head;
  const auto& message = parser.get();
  HttpRequest& request = head.request;
  request.method = std::string(message.method_string());
  const std::string_view target = origin_form({message.target().data(), message.target().size()});
  const size_t question = std::min(target.find('?'), target.size());
  request.path = percent_decoded(target.substr(0, question), false);
  request.query = std::string(target.substr(std::min(question + 1, target.size())));
  for (const auto& field : message) {
    request.headers.emplace_back(
        std::string(field.name_string()), std::string(field.value().data(), field.value().size()));
  }
  head.keep_alive = message.keep_alive();
  head.chunks = message.version() >= 11;
  head.only_head = request.method == "HEAD";
  return head;
}

// One request. False: the connection ends.
Task<bool> Connection::serve() {
  Parser parser;
  parser.header_limit(static_cast<uint32_t>(shared_.options.max_header));
  parser.body_limit(shared_.options.max_body);
  set_deadline(shared_.options.header_time);
  boost::system::error_code error;
  reading_ = true;
  co_await http::async_read_header(stream_, buffer_, parser, to(error));
  reading_ = false;
  if (error && late_) {
    co_return co_await fail(408, too_slow("headers", shared_.options.header_time), {});
  }
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    co_return co_await fail(431, "the request's headers are too large", {});
  }
  if (error == http::error::body_limit) {
    co_return co_await fail(413, "the request's body is too large", head_of(parser));
  }
  if (is_bad_http(error)) {
    co_return co_await fail(400, "not an HTTP request: " + what_is_wrong(error), {});
  }
  if (error) {
    co_return false;
  }
  idle_ = false;
  Head head = head_of(parser);
  // The parser takes a body that is encoded otherwise for none, and what it says for a request.
  const auto odd = [](const auto& row) {
    return same_word(row.first, "Transfer-Encoding") && !same_word(row.second, "chunked");
  };
  if (std::any_of(head.request.headers.begin(), head.request.headers.end(), odd)) {
    co_return co_await fail(400, "the only transfer encoding that is understood is chunked", head);
  }
  if (std::optional<Response> refused = shared_.handler.refuse(head.request)) {
    head.keep_alive = head.keep_alive && parser.is_done();  // its body is not read
    co_return co_await respond(std::move(*refused), head) && head.keep_alive;
  }
  if (!parser.is_done() && !co_await read_body(parser, head)) {
    co_return false;
  }
  head.request.body = std::move(parser.get().body());
  no_deadline();
  std::optional<Response> response = co_await handle(std::move(head.request));
  co_return response&& co_await respond(std::move(*response), head) && goes_on(head);
}

Task<bool> Connection::read_body(Parser& parser, const Head& head) {
  boost::system::error_code error;
  const std::string_view expect = head.request.header("Expect");
  if (!expect.empty()) {
    if (!same_word(expect, "100-continue")) {
      co_return co_await fail(417, "only 100-continue may be expected", head);
    }
    if (buffer_.size() == 0 && !co_await write("HTTP/1.1 100 Continue\r\n\r\n")) {
      co_return false;
    }
  }
  set_deadline(shared_.options.body_time);
  reading_ = true;
  co_await http::async_read(stream_, buffer_, parser, to(error));
  reading_ = false;
  if (error && late_) {
    co_return co_await fail(408, too_slow("body", shared_.options.body_time), head);
  }
  if (error == http::error::body_limit) {
    co_return co_await fail(
        413,
        "the request's body is larger than " + std::to_string(shared_.options.max_body) + " bytes",
        head);
  }
  if (is_bad_http(error)) {
    co_return co_await fail(
        400, "the request's body is not framed well: " + what_is_wrong(error), head);
  }
  co_return !error;
}

// Always false: the rest of what the client sends cannot be told apart.
Task<bool> Connection::fail(int status, const std::string& message, const Head& head) {
  Head last = head;
  last.keep_alive = false;
  co_await respond(shared_.handler.error(status, message, head.request), last);
  co_return false;
}

Task<std::optional<Response>> Connection::handle(HttpRequest request) {
  if (shared_.handler.is_quick(request)) {
    co_return co_await settle(shared_.handler.handle(std::move(request)));
  }
  struct Job {
    HttpRequest request;
    std::optional<Response> response;
    std::atomic<bool> done = false;
  };
  auto job = std::make_shared<Job>();
  job->request = std::move(request);
  asio::post(shared_.workers, [job, notify = notifier(), &handler = shared_.handler] {
    job->response = handler.handle(std::move(job->request));
    job->done = true;
    notify();
  });
  while (!job->done) {
    if (!co_await await_news()) {
      co_return std::nullopt;  // the job's response goes with the job
    }
  }
  co_return co_await settle(std::move(*job->response));
}

// Before a response is there. False: nobody waits for it any more.
Task<bool> Connection::await_news() {
  watch();
  co_await wait(Clock::time_point::max());
  bool sent = true;
  if (std::exchange(pressed_, false) && !gone_ && sent_ahead_ < kVersion.size()) {
    sent = co_await write(std::string(1, kVersion[sent_ahead_++]));
  }
  co_return sent && !gone_;
}

// The response itself, once there is one.
Task<std::optional<Response>> Connection::settle(Response response) {
  while (response.pending) {
    const std::unique_ptr<PendingResponse> pending = std::move(response.pending);
    pending->start(notifier());
    std::optional<Response> settled;
    while (!(settled = pending->poll())) {
      if (!co_await await_news()) {
        co_return std::nullopt;
      }
    }
    std::move(
        response.headers.begin(), response.headers.end(), std::back_inserter(settled->headers));
    response = std::move(*settled);
  }
  co_return response;
}

// Whether there may be another request after this one.
bool Connection::goes_on(const Head& head) const {
  return head.keep_alive && !shared_.draining && !(ended_ && buffer_.size() == 0);
}

// What is left to send of the head.
std::string Connection::begin_of(const Response& response, Framing framing, bool keep_alive) {
  return response_head(response, framing, keep_alive).substr(std::exchange(sent_ahead_, 0));
}

Task<bool> Connection::respond(Response response, const Head& head) {
  shared_.handler.sending(response.status);
  if (response.stream && !head.only_head) {
    co_return co_await send_stream(std::move(response), head);
  }
  std::string bytes = begin_of(response, Framing::length, goes_on(head));
  if (!head.only_head) {
    bytes += response.body;
  }
  co_return co_await write(std::move(bytes));
}

Task<bool> Connection::send_stream(Response response, const Head& head) {
  const Framing framing = head.chunks ? Framing::chunked : Framing::until_close;
  std::string bytes = begin_of(response, framing, goes_on(head) && head.chunks);
  const std::unique_ptr<ResponseStream> stream = std::move(response.stream);
  stream->start(notifier());
  const auto add = [&](const std::string& piece) {
    if (piece.empty()) {
      return;  // an empty chunk would be the last
    }
    bytes += framing == Framing::chunked ? chunk_head(piece.size()) + piece + "\r\n" : piece;
  };
  auto last = Clock::now();
  while (true) {
    const ResponseStream::Piece piece = stream->pull(shared_.options.piece);
    add(piece.bytes);
    if (piece.ended && framing == Framing::chunked) {
      bytes += "0\r\n\r\n";
    }
    if (!bytes.empty()) {
      watch();
      if (!co_await write(std::exchange(bytes, {}))) {
        co_return false;
      }
      last = Clock::now();
    }
    if (piece.ended) {
      co_return head.chunks;
    }
    if (piece.bytes.empty()) {
      watch();
      // What comes may leave nothing to send, for long.
      const auto until = last + shared_.options.keep_alive;
      co_await wait(until);
      if (gone_) {
        co_return false;
      }
      if (std::exchange(pressed_, false) || Clock::now() >= until) {
        add(stream->keep_alive());
      }
    }
  }
}

// False: the client is gone, or has taken too little for too long.
Task<bool> Connection::write(std::string bytes) {
  boost::system::error_code error;
  size_t written = 0;
  while (written < bytes.size() && !error) {
    set_deadline(shared_.options.write_time);
    written += co_await stream_.async_write_some(
        asio::buffer(bytes.data() + written, bytes.size() - written), to(error));
  }
  no_deadline();
  co_return !error && !gone_;
}

}  // namespace quince::server
