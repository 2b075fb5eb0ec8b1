// One client's connection: reads requests, has them handled, writes responses, one after another.
// Everything here runs on the thread of its event loop but for what is marked. Internal to the
// files http_*.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "server/http.h"
#include "server/http_asio.h"
#include "server/http_stream.h"
#include "server/http_text.h"
#include "server/http_tls.h"

namespace quince::server {

// What all connections of a server share.
struct Shared {
  const HttpOptions options;
  HttpHandler& handler;
  TlsSource tls;
  asio::thread_pool workers;
  std::atomic<bool> draining = false;
  std::atomic<int> connections = 0;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Socket socket, Shared& shared);

  void start();
  void close_if_idle();  // on its loop's thread
  void close();

 private:
  using Clock = std::chrono::steady_clock;
  using Parser = beast::http::request_parser<beast::http::string_body>;
  static constexpr size_t kReadAtOnce = 2048;
  struct Head {
    HttpRequest request;
    bool keep_alive = false;
    bool chunks = false;  // the client understands them
    bool only_head = false;
  };

  Task<void> run();
  Task<void> guard();
  Task<bool> shake_hands();
  Task<bool> await_request();
  Task<bool> serve();
  Task<bool> read_body(Parser& parser, const Head& head);
  Task<bool> fail(int status, const std::string& message, const Head& head);
  Task<std::optional<Response>> handle(HttpRequest request);
  Task<std::optional<Response>> settle(Response response);
  Task<bool> await_news();
  bool goes_on(const Head& head) const;
  std::string begin_of(const Response& response, Framing framing, bool keep_alive);
  Task<bool> respond(Response response, const Head& head);
  Task<bool> send_stream(Response response, const Head& head);
  Task<bool> write(std::string bytes);
  Task<void> linger();

  Task<bool> wait(Clock::time_point until);  // true: woken
  void wake();
  std::function<void()> notifier();  // what it returns may be called on any thread
  void watch();
  void press(unsigned round);
  Task<void> end_watching();
  void set_deadline(Clock::duration from_now);
  void set_deadline(Clock::time_point deadline);
  void no_deadline();

  static Head head_of(const Parser& parser);

  // First, so that it ends last: a server waits for it before it takes the event loop away.
  struct Counted {
    explicit Counted(Shared& shared) : shared(shared) {
      ++shared.connections;
    }
    ~Counted() {
      --shared.connections;
    }
    Shared& shared;
  };

  Counted counted_;
  Shared& shared_;
  HttpStream stream_;
  beast::flat_buffer buffer_;  // read, and not yet parsed
  Timer wake_timer_;
  Timer guard_timer_;
  Clock::time_point deadline_ = Clock::time_point::max();
  bool woken_ = false;
  std::atomic<bool> notified_ = false;  // a wake() is on its way; any thread
  bool watching_ = false;               // a read is under way beside a response
  bool secured_ = false;                // TLS has been agreed on
  bool ended_ = false;                  // the client has ended its side, and may still read
  bool pressed_ = false;                // something is to be sent, see press()
  size_t sent_ahead_ = 0;               // bytes of the head of a response that is not there yet
  bool over_ = false;                   // there will be no more requests
  bool gone_ = false;                   // the client has closed, or we have
  bool idle_ = true;                    // between requests, or before one's head is there
  bool reading_ = false;                // a request that has begun
  bool late_ = false;                   // what is being read of a request did not come in time
};

}  // namespace quince::server
