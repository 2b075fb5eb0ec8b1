#include "server/upstream/link.h"

#include <sys/socket.h>

#include <cerrno>

#include <fmt/format.h>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/write.hpp>

#include "base/error.h"

namespace quince::server {

namespace {

constexpr size_t kMostKept = 256;
constexpr std::chrono::seconds kKeptFor{30};

std::shared_ptr<asio::ssl::context> tls_of(const gateway::UpstreamConfig& upstream) {
  if (!upstream.tls) {
    return nullptr;
  }
  auto tls = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_client);
  boost::system::error_code error;
  static_cast<void>(tls->set_options(
      asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
          asio::ssl::context::no_tlsv1_1,
      error));
  if (upstream.ca_file.empty()) {
    static_cast<void>(tls->set_default_verify_paths(error));
  } else {
    static_cast<void>(tls->load_verify_file(upstream.ca_file, error));
  }
  if (error) {
    throw UserError(
        "upstream {}: certificates of authorities cannot be read from {} ({})",
        upstream.name,
        upstream.ca_file.empty() ? "the system's folder" : upstream.ca_file,
        error.message());
  }
  static_cast<void>(tls->set_verify_mode(asio::ssl::verify_peer, error));
  return tls;
}

}  // namespace

Link::Link(asio::io_context& context, std::shared_ptr<asio::ssl::context> tls)
    : context_(context), tls_(std::move(tls)), socket_(context), timer_(context) {}

void Link::close() {
  Error ignored;
  static_cast<void>(socket_.close(ignored));
  deadline_ = gateway::Time::max();
  timer_.cancel();
}

void Link::set_deadline(gateway::Time at) {
  deadline_ = at;
  if (!guarding_ || at < timer_.expiry()) {
    guard();
  }
}

// One timer for all deadlines: a later one is looked at when the earlier one has passed.
void Link::guard() {
  if (deadline_ == gateway::Time::max()) {
    guarding_ = false;
    return;
  }
  guarding_ = true;
  timer_.expires_at(deadline_);
  timer_.async_wait([weak = weak_from_this()](const Error& error) {
    const auto self = weak.lock();
    if (!self || error == asio::error::operation_aborted) {
      return;
    }
    if (gateway::Clock::now() >= self->deadline_) {
      self->timed_out_ = true;
      self->guarding_ = false;
      Error ignored;
      static_cast<void>(self->socket_.close(ignored));
      return;
    }
    self->guard();
  });
}

Task<Link::Error> Link::open(const gateway::UpstreamConfig& upstream) {
  Error error = co_await connect(upstream);
  if (!error && tls_) {
    error = co_await shake_hands(upstream);
  }
  if (timed_out_) {
    error = asio::error::timed_out;
  }
  co_return error;
}

// The system's look-up cannot be cancelled: it is left to itself when the time is over.
Task<Link::Error> Link::resolve(
    const gateway::UpstreamConfig& upstream, std::vector<asio::ip::tcp::endpoint>& to_fill) {
  struct Lookup {
    explicit Lookup(asio::io_context& context) : resolver(context), done(context) {}
    asio::ip::basic_resolver<asio::ip::tcp, Executor> resolver;
    Timer done;
    Error error = asio::error::timed_out;
    std::vector<asio::ip::tcp::endpoint> endpoints;
  };
  const auto lookup = std::make_shared<Lookup>(context_);
  lookup->done.expires_at(deadline_);
  lookup->resolver.async_resolve(
      upstream.host,
      std::to_string(upstream.port),
      [lookup](const Error& error, const asio::ip::tcp::resolver::results_type& found) {
        lookup->error = error;
        for (const auto& entry : found) {
          lookup->endpoints.push_back(entry.endpoint());
        }
        lookup->done.cancel();
      });
  Error ignored;
  co_await lookup->done.async_wait(to(ignored));
  to_fill = std::move(lookup->endpoints);
  timed_out_ = timed_out_ || lookup->error == asio::error::timed_out;
  co_return !lookup->error && to_fill.empty() ? Error(asio::error::host_not_found) : lookup->error;
}

Task<Link::Error> Link::connect(const gateway::UpstreamConfig& upstream) {
  Error error;
  std::vector<asio::ip::tcp::endpoint> endpoints;
  const auto address = asio::ip::make_address(upstream.host, error);
  if (!error) {
    endpoints.emplace_back(address, static_cast<uint16_t>(upstream.port));
  } else {
    error = co_await resolve(upstream, endpoints);
  }
  for (const auto& endpoint : endpoints) {
    if (timed_out_) {
      break;
    }
    Error ignored;
    static_cast<void>(socket_.close(ignored));
    co_await socket_.async_connect(endpoint, to(error));
    if (!error) {
      static_cast<void>(socket_.set_option(asio::ip::tcp::no_delay(true), ignored));
      break;
    }
  }
  co_return error;
}

Task<Link::Error> Link::shake_hands(const gateway::UpstreamConfig& upstream) {
  Error error;
  secure_ = std::make_unique<asio::ssl::stream<Socket&>>(socket_, *tls_);
  static_cast<void>(
      secure_->set_verify_callback(asio::ssl::host_name_verification(upstream.host), error));
  Error is_name;
  asio::ip::make_address(upstream.host, is_name);
  if (is_name) {  // an address is not sent as a name (RFC 6066)
    SSL_set_tlsext_host_name(secure_->native_handle(), upstream.host.c_str());
  }
  co_await secure_->async_handshake(asio::ssl::stream_base::client, to(error));
  co_return error;
}

Task<Link::Error> Link::write(std::span<const std::string_view> parts) {
  Error error;
  std::vector<asio::const_buffer> buffers;
  for (const std::string_view part : parts) {
    buffers.emplace_back(part.data(), part.size());
  }
  if (secure_) {
    co_await asio::async_write(*secure_, buffers, to(error));
  } else {
    co_await asio::async_write(socket_, buffers, to(error));
  }
  co_return error;
}

Task<Link::Error> Link::read(std::string& bytes) {
  Error error;
  const auto room = asio::buffer(buffer_);
  const size_t count = secure_ ? co_await secure_->async_read_some(room, to(error))
                               : co_await socket_.async_read_some(room, to(error));
  bytes.append(buffer_.data(), count);
  co_return error;
}

bool Link::is_quiet() {
  if (!socket_.is_open()) {
    return false;
  }
  char byte = 0;
  const ssize_t count = ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

std::string error_text(const Link& link, const boost::system::error_code& error) {
  if (link.timed_out()) {
    return "it took too long";
  }
  if (error == asio::error::eof || error == asio::error::connection_reset ||
      error == asio::error::broken_pipe || error == asio::ssl::error::stream_truncated) {
    return "it closed the connection";
  }
  return error.message();
}

LinkPool::LinkPool(
    asio::io_context& context, std::shared_ptr<const gateway::UpstreamConfig> upstream)
    : context_(context), upstream_(std::move(upstream)), tls_(tls_of(*upstream_)) {}

std::shared_ptr<Link> LinkPool::take() {
  while (!kept_.empty()) {
    std::shared_ptr<Link> link = std::move(kept_.back());
    kept_.pop_back();
    if (link->is_quiet()) {
      link->reused = true;
      return link;
    }
    link->close();
  }
  return nullptr;
}

std::shared_ptr<Link> LinkPool::make() {
  return std::make_shared<Link>(context_, tls_);
}

void LinkPool::give(std::shared_ptr<Link> link) {
  if (closed_ || kept_.size() >= kMostKept) {
    link->close();
    return;
  }
  link->set_deadline(gateway::Time::max());
  link->idle_since = gateway::Clock::now();
  kept_.push_back(std::move(link));
}

void LinkPool::close_old(gateway::Time now) {
  std::erase_if(kept_, [&](const std::shared_ptr<Link>& link) {
    const bool old = now - link->idle_since > kKeptFor || !link->is_quiet();
    if (old) {
      link->close();
    }
    return old;
  });
}

void LinkPool::close() {
  closed_ = true;
  for (const auto& link : kept_) {
    link->close();
  }
  kept_.clear();
}

}  // namespace quince::server
