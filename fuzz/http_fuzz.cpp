// What a client may send: bytes of any kind over a real connection, in pieces, and then the end of
// its side. The first byte says how large the pieces are. Whatever comes back begins as HTTP, and
// the server still answers the next client.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "server/http.h"

namespace {

using namespace quince;
using namespace std::chrono_literals;

// Says what it was asked.
class Echo : public server::HttpHandler {
 public:
  std::optional<server::Response> refuse(const server::HttpRequest& head) override {
    if (head.path == "/no") {
      return server::Response{.status = 401};
    }
    return std::nullopt;
  }
  bool is_quick(const server::HttpRequest&) override {
    return true;
  }
  server::Response handle(server::HttpRequest request) override {
    return {
        .body = fmt::format(
            "{} {} {} {}",
            request.path,
            request.query,
            request.parameter("a").value_or(""),
            request.body.size())};
  }
  void sending(int) override {}
  server::Response error(int status, const std::string& text, const server::HttpRequest&) override {
    return {.status = status, .body = text};
  }
};

server::HttpOptions options(const std::string& path) {
  server::HttpOptions out;
  out.unix_socket = path;
  out.io_threads = 1;
  out.workers = 1;
  out.max_header = 4096;
  out.max_body = 1 << 16;
  out.header_time = out.body_time = out.idle_time = out.write_time = 10s;
  return out;
}

struct Fixture {
  std::string path = std::filesystem::temp_directory_path() / fmt::format("fuzz-{}", getpid());
  Echo echo;
  server::HttpServer server{options(path), echo};

  Fixture() {
    server.start();
  }
};

class Socket {
 public:
  explicit Socket(const std::string& path) : fd_(socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    const timeval limit{20, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    while (connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      if (errno != EINTR) {  // the fuzzer's own clock
        throw std::logic_error("the server takes no connection any more");
      }
    }
  }
  ~Socket() {
    close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  void send(std::string_view bytes) const {  // a server may close in the middle
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) {
        continue;
      }
      if (sent <= 0) {
        return;
      }
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }
  void end() const {
    shutdown(fd_, SHUT_WR);
  }
  std::string all() const {
    std::string out(4096, '\0');
    size_t size = 0;
    for (;;) {
      const ssize_t got = recv(fd_, &out[size], out.size() - size, 0);
      if (got < 0 && errno == EINTR) {
        continue;
      }
      if (got <= 0) {
        break;
      }
      size += static_cast<size_t>(got);
      out.resize(size + 4096);
    }
    out.resize(size);
    return out;
  }

 private:
  int fd_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Fixture fixture;
  if (size == 0) {
    return 0;
  }
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t piece = data[0] == 0 ? bytes.size() + 1 : data[0];
  {
    const Socket socket(fixture.path);
    for (size_t at = 0; at < bytes.size() && at / piece < 64; at += piece) {
      socket.send(bytes.substr(at, at / piece == 63 ? bytes.size() : piece));
    }
    socket.end();
    const std::string answer = socket.all();
    if (!answer.empty() && !answer.starts_with("HTTP/1.1 ")) {
      throw std::logic_error("not HTTP: " + answer);
    }
  }
  const Socket next(fixture.path);
  next.send("GET /next HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  const std::string answer = next.all();
  if (!answer.ends_with("/next   0")) {
    throw std::logic_error("the next client got: " + answer);
  }
  return 0;
}
