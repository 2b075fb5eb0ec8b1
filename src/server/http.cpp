#include "server/http.h"

#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include <fmt/format.h>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>

#include "base/error.h"
#include "server/http_connection.h"
#include "server/http_text.h"
#include "server/http_tls.h"

namespace quince::server {

namespace {

using Acceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol, Executor>;
using Endpoint = asio::generic::stream_protocol::endpoint;

// One event loop, its thread, and the connections that live on it.
struct Loop {
  asio::io_context context{1};
  asio::executor_work_guard<Executor> work{context.get_executor()};
  std::vector<std::weak_ptr<Connection>> connections;  // the loop's thread only
  size_t swept = 0;                                    // their number when the dead were taken out
  std::thread thread;

  void add(const std::shared_ptr<Connection>& connection) {
    if (connections.size() >= 2 * swept + 64) {
      std::erase_if(connections, [](const auto& weak) { return weak.expired(); });
      swept = connections.size();
    }
    connections.push_back(connection);
  }
};

std::string bracketed(const std::string& host) {
  return host.find(':') == std::string::npos ? host : "[" + host + "]";
}

// "[::1]" is how people write it.
std::string without_brackets(const std::string& host) {
  return host.size() > 2 && host.front() == '[' && host.back() == ']'
             ? host.substr(1, host.size() - 2)
             : host;
}

std::string cause(const boost::system::error_code& error) {
  if (error == asio::error::address_in_use) {
    return "another program is listening there; stop it or choose another port";
  }
  if (error == asio::error::access_denied) {
    return "not permitted; ports below 1024 need special rights";
  }
  return error.message();
}

Endpoint tcp_endpoint(asio::io_context& context, const HttpOptions& options) {
  if (options.port < 0 || options.port > 65535) {
    throw UserError("port {}: want a number from 0 (any that is free) to 65535", options.port);
  }
  const std::string host = without_brackets(options.host);
  boost::system::error_code error;
  asio::ip::tcp::resolver resolver(context);
  const auto found =
      resolver.resolve(host, std::to_string(options.port), asio::ip::resolver_base::passive, error);
  if (error || found.empty()) {
    throw UserError("host {}: cannot be found ({})", options.host, error.message());
  }
  for (const auto& entry : found) {  // "localhost" is both; most clients try IPv4
    if (entry.endpoint().address().is_v4()) {
      return entry.endpoint();
    }
  }
  return found.begin()->endpoint();
}

// A socket file that a server which has ended left behind goes.
Endpoint unix_endpoint(asio::io_context& context, const std::string& path) {
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    throw UserError(
        "socket {}: the path is too long, at most {} bytes",
        path,
        sizeof(sockaddr_un::sun_path) - 1);
  }
  const Endpoint endpoint(asio::local::stream_protocol::endpoint{path});
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0) {
    return endpoint;
  }
  if (!S_ISSOCK(status.st_mode)) {
    throw UserError("socket {}: there is a file of that name which is no socket", path);
  }
  Socket probe(context);
  boost::system::error_code error;
  static_cast<void>(probe.connect(endpoint, error));
  if (!error) {
    throw UserError("socket {}: {}", path, cause(asio::error::address_in_use));
  }
  ::unlink(path.c_str());
  return endpoint;
}

}  // namespace

struct HttpServer::Impl {
  Shared shared;
  std::vector<std::unique_ptr<Loop>> loops;
  std::optional<Acceptor> acceptor;  // used on the first loop's thread once started
  size_t next_loop = 0;
  int port = 0;

  Impl(const HttpOptions& options, HttpHandler& handler)
      : shared{
            options,
            handler,
            TlsSource(options.certificate_file, options.key_file),
            asio::thread_pool(static_cast<size_t>(options.workers))} {
    for (int i = 0; i < std::max(1, shared.options.io_threads); ++i) {
      loops.push_back(std::make_unique<Loop>());
    }
    listen();
  }

  std::string address() const {
    return shared.options.unix_socket.empty()
               ? fmt::format("{}:{}", bracketed(without_brackets(shared.options.host)), port)
               : "socket " + shared.options.unix_socket;
  }

  // No SO_REUSEPORT: a second server on the same port must hear that it is taken.
  void listen() {
    asio::io_context& context = loops.front()->context;
    port = shared.options.unix_socket.empty() ? shared.options.port : 0;
    const Endpoint endpoint = shared.options.unix_socket.empty()
                                  ? tcp_endpoint(context, shared.options)
                                  : unix_endpoint(context, shared.options.unix_socket);
    acceptor.emplace(context);
    boost::system::error_code error;
    static_cast<void>(acceptor->open(endpoint.protocol(), error));
    if (!error && shared.options.unix_socket.empty()) {
      static_cast<void>(acceptor->set_option(asio::socket_base::reuse_address(true), error));
    }
    if (!error) {
      static_cast<void>(acceptor->bind(endpoint, error));
    }
    if (!error) {
      static_cast<void>(acceptor->listen(4096, error));
    }
    if (error) {
      throw UserError("cannot listen on {}: {}", address(), cause(error));
    }
    if (shared.options.unix_socket.empty()) {
      asio::ip::tcp::endpoint bound;
      const Endpoint generic = acceptor->local_endpoint();
      bound.resize(generic.size());
      std::memcpy(bound.data(), generic.data(), generic.size());
      port = bound.port();
    }
  }

  void accept() {
    Loop& loop = *loops[next_loop++ % loops.size()];
    auto socket = std::make_shared<Socket>(loop.context);
    acceptor->async_accept(*socket, [this, &loop, socket](const boost::system::error_code& error) {
      if (error == asio::error::operation_aborted || !acceptor->is_open()) {
        return;
      }
      if (!error) {
        begin(loop, std::move(*socket));
        return accept();
      }
      // Out of descriptors, most likely: others must end first.
      auto pause = std::make_shared<Timer>(acceptor->get_executor(), std::chrono::milliseconds(50));
      pause->async_wait([this, pause](const boost::system::error_code& stopped) {
        if (!stopped && acceptor->is_open()) {
          accept();
        }
      });
    });
  }

  void begin(Loop& loop, Socket socket) {
    boost::system::error_code ignored;
    static_cast<void>(socket.set_option(asio::ip::tcp::no_delay(true), ignored));
    static_cast<void>(socket.set_option(
        asio::socket_base::send_buffer_size(shared.options.send_buffer), ignored));
    if (shared.connections >= shared.options.max_connections) {
      if (shared.tls.current()) {
        return;  // a handshake only to refuse would be work, and there is too much of it
      }
      const Response full =
          shared.handler.error(503, "too many connections are open; try again later", {});
      const std::string text = response_head(full, Framing::length, false) + full.body;
      static_cast<void>(socket.send(asio::buffer(text), 0, ignored));
      return;
    }
    auto connection = std::make_shared<Connection>(std::move(socket), shared);
    asio::post(loop.context, [&loop, connection] {
      loop.add(connection);
      connection->start();
    });
  }

  void start() {
    accept();
    for (const auto& loop : loops) {
      loop->thread = std::thread([&context = loop->context] { context.run(); });
    }
  }

  void stop_accepting() {
    shared.draining = true;
    asio::post(loops.front()->context, [this] {
      boost::system::error_code ignored;
      static_cast<void>(acceptor->close(ignored));
    });
  }

  void each_connection(void (Connection::*what)()) {
    for (const auto& loop : loops) {
      asio::post(loop->context, [loop = loop.get(), what] {
        for (const auto& weak : loop->connections) {
          if (const auto connection = weak.lock()) {
            (*connection.*what)();
          }
        }
      });
    }
  }

  bool wait_for_end(std::chrono::milliseconds limit) const {
    const auto until = std::chrono::steady_clock::now() + limit;
    while (shared.connections > 0 && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return shared.connections == 0;
  }

  void stop() {
    stop_accepting();
    each_connection(&Connection::close);
    shared.workers.join();
    if (loops.front()->thread.joinable()) {
      wait_for_end(std::chrono::seconds(5));
    }
    for (const auto& loop : loops) {
      loop->work.reset();
      loop->context.stop();
      if (loop->thread.joinable()) {
        loop->thread.join();
      }
    }
    if (!shared.options.unix_socket.empty() && acceptor) {
      ::unlink(shared.options.unix_socket.c_str());
    }
  }
};

HttpServer::HttpServer(const HttpOptions& options, HttpHandler& handler)
    : impl_(std::make_unique<Impl>(options, handler)) {}

HttpServer::~HttpServer() {
  impl_->stop();
}

void HttpServer::start() {
  impl_->start();
}

bool HttpServer::drain(std::chrono::milliseconds limit) {
  impl_->stop_accepting();
  impl_->each_connection(&Connection::close_if_idle);
  return impl_->wait_for_end(limit);
}

void HttpServer::reload_certificate() {
  impl_->shared.tls.reload();
}

int HttpServer::port() const {
  return impl_->port;
}

std::string HttpServer::url() const {
  const Shared& shared = impl_->shared;
  if (!shared.options.unix_socket.empty()) {
    return "unix:" + shared.options.unix_socket;
  }
  return (shared.tls.current() ? "https://" : "http://") + impl_->address();
}

int HttpServer::connections() const {
  return impl_->shared.connections;
}

}  // namespace quince::server
