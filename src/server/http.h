// HTTP/1.1 over TCP and Unix sockets, plain or through TLS. What a request means is the handler's
// business; here are sockets, framing, limits, time, and whether the client is still there. Only
// http.cpp, the files named http_* and those of upstream/ see the HTTP library.
//
// Two kinds of threads: a few I/O threads, each with its own event loop and its own connections,
// and a small pool of workers on which handlers run (they may compute, never wait for a model).
// Neither a connection nor a response in progress has a thread. A response is a body, or something
// that will have one later (PendingResponse), or a body in pieces (ResponseStream), pulled only
// while the socket takes bytes: so a slow client holds back what makes its own response and nothing
// else.
//
// A client that goes away has its response destroyed at once, whatever state that is in. One that
// only ends its side of the connection is answered (see Connection::press); through TLS it is gone.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quince::gateway {
class KeyUse;
}

namespace quince::server {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // "POST"
  std::string path;    // without the query, percent-decoded
  std::string query;   // after the question mark, as it came
  Headers headers;
  std::string body;
  std::shared_ptr<gateway::KeyUse> key_use = nullptr;  // what the request is counted on

  // The first header of that name in any letter case, or "".
  std::string_view header(std::string_view name) const;
  // The value of a query parameter, percent-decoded.
  std::optional<std::string> parameter(std::string_view name) const;
};

// Something that is being made by other threads. Called on the connection's I/O thread only.
class Producer {
 public:
  virtual ~Producer() = default;  // ends what makes it
  // Once, first. notify: to be called, on any thread, whenever there may be something new; it may
  // be called after the producer is gone.
  virtual void start(std::function<void()> notify) = 0;
};

struct Response;

class PendingResponse : public Producer {
 public:
  virtual std::optional<Response> poll() = 0;  // never waits
};

class ResponseStream : public Producer {
 public:
  struct Piece {
    std::string bytes;
    bool ended = false;  // after these bytes
  };
  // What there is by now, at most about max_bytes of it. Never waits.
  virtual Piece pull(size_t max_bytes) = 0;
  // Sent when nothing else was for HttpOptions::keep_alive.
  virtual std::string keep_alive() = 0;
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  Headers headers = {};
  std::string body = {};
  std::unique_ptr<ResponseStream> stream = nullptr;  // instead of a body
  // Instead of all of the above; but these headers are added to its own.
  std::unique_ptr<PendingResponse> pending = nullptr;
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Before the body is read: a response refuses the request. On an I/O thread: must be quick.
  virtual std::optional<Response> refuse(const HttpRequest& head) = 0;
  // Whether handle() takes so little time for this request that it may be called on an I/O thread:
  // it is then answered also while every worker is busy.
  virtual bool is_quick(const HttpRequest& head) = 0;
  // On a worker, or as is_quick() says. May not throw.
  virtual Response handle(HttpRequest request) = 0;
  // A response of that status goes out. On an I/O thread.
  virtual void sending(int status) = 0;
  // What the server itself has to say: 400, 408, 413, 431, 503. head is what is known of the
  // request.
  virtual Response error(int status, const std::string& message, const HttpRequest& head) = 0;
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 8080;               // 0: any that is free
  std::string unix_socket = {};  // a path; instead of host and port
  // PEM; both, or neither: no TLS. Read when the server is made,
  // and by reload_certificate().
  std::string certificate_file = {};
  std::string key_file = {};
  int io_threads = 2;
  int workers = 2;
  size_t max_header = size_t{64} << 10;  // bytes
  size_t max_body = size_t{32} << 20;    // bytes
  int max_connections = 20000;
  int send_buffer = 64 << 10;  // bytes the system may hold for a client that does not read
  size_t piece = size_t{64} << 10;
  std::chrono::milliseconds header_time{30'000};  // from a request's first byte
  std::chrono::milliseconds body_time{120'000};
  std::chrono::milliseconds idle_time{120'000};  // between requests
  std::chrono::milliseconds write_time{60'000};  // a client that takes nothing for so long is left
  std::chrono::milliseconds keep_alive{10'000};  // of a stream without news
};

class HttpServer {
 public:
  // Binds and listens. Throws UserError naming the address, or the file of the certificate or the
  // key, and what is wrong with it. The handler must outlive the server.
  HttpServer(const HttpOptions& options, HttpHandler& handler);
  ~HttpServer();  // closes everything

  void start();
  // Takes no new connections, closes idle ones, and waits until the others have their responses; no
  // longer than limit. False: some had not.
  bool drain(std::chrono::milliseconds limit);

  // Reads the certificate and its key again, for connections that begin from now on. Without them:
  // does nothing. Throws UserError: then all stays as it was.
  void reload_certificate();

  int port() const;         // 0 for a Unix socket
  std::string url() const;  // "http://127.0.0.1:8080", "unix:/run/quince.sock"
  int connections() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quince::server
