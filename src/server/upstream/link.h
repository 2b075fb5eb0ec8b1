// A connection to an upstream, plain or TLS, and the pool of those that are kept open between
// requests. Everything here runs on one event loop's thread.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>

#include "gateway/clock.h"
#include "gateway/config.h"
#include "server/http_asio.h"

namespace quince::server {

class Link : public std::enable_shared_from_this<Link> {
 public:
  using Error = boost::system::error_code;

  // tls null: plain.
  Link(asio::io_context& context, std::shared_ptr<asio::ssl::context> tls);

  Task<Error> open(const gateway::UpstreamConfig& upstream);
  Task<Error> write(std::span<const std::string_view> parts);
  // More bytes, appended to `to`; an error also when the other side has closed.
  Task<Error> read(std::string& to);
  void close();
  // Whatever is under way fails at that time.
  void set_deadline(gateway::Time at);
  bool timed_out() const {
    return timed_out_;
  }
  // Not closed by the other side, and nothing came unasked.
  bool is_quiet();

  bool reused = false;
  gateway::Time idle_since;

 private:
  using Socket = asio::basic_stream_socket<asio::ip::tcp, Executor>;

  Task<Error> resolve(
      const gateway::UpstreamConfig& upstream, std::vector<asio::ip::tcp::endpoint>& to_fill);
  Task<Error> connect(const gateway::UpstreamConfig& upstream);
  Task<Error> shake_hands(const gateway::UpstreamConfig& upstream);
  void guard();

  asio::io_context& context_;
  std::shared_ptr<asio::ssl::context> tls_;
  Socket socket_;
  std::unique_ptr<asio::ssl::stream<Socket&>> secure_;
  Timer timer_;
  gateway::Time deadline_ = gateway::Time::max();
  bool guarding_ = false;
  bool timed_out_ = false;
  std::array<char, size_t{16} << 10> buffer_;
};

// What can go wrong is said in words that name neither keys nor requests.
std::string error_text(const Link& link, const boost::system::error_code& error);

class LinkPool {
 public:
  // Throws UserError: the authorities' file is no good.
  LinkPool(asio::io_context& context, std::shared_ptr<const gateway::UpstreamConfig> upstream);

  const gateway::UpstreamConfig& upstream() const {
    return *upstream_;
  }
  void set(std::shared_ptr<const gateway::UpstreamConfig> upstream) {  // other than where it is
    upstream_ = std::move(upstream);
  }
  // One that was kept (reused), or null.
  std::shared_ptr<Link> take();
  std::shared_ptr<Link> make();  // not yet open
  void give(std::shared_ptr<Link> link);
  void close_old(gateway::Time now);  // those that nobody wanted for a while
  void close();                       // all, and keeps no more
  size_t kept() const {
    return kept_.size();
  }

 private:
  asio::io_context& context_;
  std::shared_ptr<const gateway::UpstreamConfig> upstream_;
  std::shared_ptr<asio::ssl::context> tls_;
  std::vector<std::shared_ptr<Link>> kept_;  // the one used last at the end
  bool closed_ = false;
};

}  // namespace quince::server
