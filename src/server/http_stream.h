// The bytes of one client's connection: as they are, or through TLS. Satisfies Beast's AsyncStream.
// Everything here runs on the thread of its event loop; one read and one write may be under way at
// a time. Internal to the files http_*.
#pragma once

#include <memory>
#include <utility>

#include <boost/asio/async_result.hpp>
#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>

#include "server/http_asio.h"

namespace quince::server {

using Socket = asio::basic_stream_socket<asio::generic::stream_protocol, Executor>;

class HttpStream {
 public:
  using Error = boost::system::error_code;
  using executor_type = Executor;

  // tls null: plain.
  HttpStream(Socket socket, std::shared_ptr<asio::ssl::context> tls)
      : socket_(std::move(socket)), tls_(std::move(tls)) {
    if (tls_) {
      secure_ = std::make_unique<Secure>(socket_, *tls_);
    }
  }
  HttpStream(const HttpStream&) = delete;  // secure_ knows where socket_ is
  HttpStream& operator=(const HttpStream&) = delete;

  executor_type get_executor() {
    return socket_.get_executor();
  }
  Socket& socket() {
    return socket_;
  }
  bool secure() const {
    return secure_ != nullptr;
  }

  // TLS only: before anything is read or written, and after the last write.
  Task<Error> shake_hands() {
    Error error;
    co_await secure_->async_handshake(asio::ssl::stream_base::server, to(error));
    co_return error;
  }
  Task<Error> say_goodbye() {  // until the client has said it too
    Error error;
    co_await secure_->async_shutdown(to(error));
    co_return error;
  }
  // The same where there is no time: what the socket does not take at once is not said. keep: what
  // the stream is part of.
  void last_word(std::shared_ptr<void> keep) {
    secure_->async_shutdown([keep = std::move(keep)](const Error&) {});
  }

  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return asio::async_initiate<Token, void(Error, size_t)>(
        [this](auto handler, const Buffers& into) {
          secure_ ? secure_->async_read_some(into, std::move(handler))
                  : socket_.async_read_some(into, std::move(handler));
        },
        token,
        buffers);
  }
  template <typename Buffers, typename Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return asio::async_initiate<Token, void(Error, size_t)>(
        [this](auto handler, const Buffers& from) {
          secure_ ? secure_->async_write_some(from, std::move(handler))
                  : socket_.async_write_some(from, std::move(handler));
        },
        token,
        buffers);
  }

 private:
  using Secure = asio::ssl::stream<Socket&>;

  Socket socket_;
  std::shared_ptr<asio::ssl::context> tls_;  // the server may have another one by now
  std::unique_ptr<Secure> secure_;
};

}  // namespace quince::server
