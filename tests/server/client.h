// A client that can also misbehave: raw bytes over a socket, answers taken apart.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

namespace quince::test {

struct Answer {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // without chunk framing
  std::vector<std::string> chunks;             // as they were framed

  boost::json::value json() const {
    return boost::json::parse(body);
  }
};

class Client {
 public:
  explicit Client(int port, int receive_buffer = 0) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0) {
      ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connect(reinterpret_cast<sockaddr*>(&address), sizeof(address));
  }
  explicit Client(const std::string& path) : socket_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    connect(reinterpret_cast<sockaddr*>(&address), sizeof(address));
  }
  virtual ~Client() {
    close();
  }
  Client(Client&& other) noexcept : socket_(other.socket_), held_(std::move(other.held_)) {
    other.socket_ = -1;
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void close() {
    if (socket_ >= 0) {
      ::close(socket_);
    }
    socket_ = -1;
  }
  void reset() {  // with RST
    const linger now{1, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close();
  }
  void end_writing() {
    ::shutdown(socket_, SHUT_WR);
  }

  // False: the server has closed.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = put(bytes);
      if (sent <= 0) {
        return false;
      }
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  bool post(const std::string& path, const std::string& body, const std::string& headers = "") {
    return send(
        "POST " + path + " HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n" + headers +
        "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  }
  bool get(const std::string& path, const std::string& headers = "") {
    return send("GET " + path + " HTTP/1.1\r\nHost: test\r\n" + headers + "\r\n");
  }

  // More bytes, or nothing: the server has closed. Throws when nothing came in time.
  std::string read_some(double seconds = 20) {
    if (!held_.empty()) {
      return std::exchange(held_, {});
    }
    char buffer[65536];
    const ssize_t count = take(buffer, sizeof(buffer), seconds);
    return count > 0 ? std::string(buffer, static_cast<size_t>(count)) : "";
  }

  std::string read_until(std::string_view mark, double seconds = 20) {
    std::string text;
    size_t at = 0;
    while ((at = text.find(mark)) == std::string::npos) {
      const std::string more = read_some(seconds);
      if (more.empty()) {
        throw std::runtime_error("the server closed after: " + text);
      }
      text += more;
    }
    held_ = text.substr(at + mark.size());
    return text.substr(0, at + mark.size());
  }

  // False: not in time.
  bool readable(double seconds) {
    pollfd poll{socket_, POLLIN, 0};
    return ::poll(&poll, 1, static_cast<int>(seconds * 1000)) != 0;
  }

  bool closed_by_server(double seconds = 20) {
    return read_some(seconds).empty();
  }

  // without_body: of a HEAD request.
  Answer read_answer(bool without_body = false, double seconds = 20) {
    Answer answer = read_head(seconds);
    if (without_body || answer.status == 204) {
      return answer;
    }
    if (answer.headers.contains("transfer-encoding")) {
      while (auto chunk = read_chunk(seconds)) {
        answer.body += *chunk;
        answer.chunks.push_back(std::move(*chunk));
      }
    } else if (answer.headers.contains("content-length")) {
      answer.body = read_exactly(std::stoul(answer.headers["content-length"]), seconds);
    } else {
      std::string more;
      while (!(more = read_some(seconds)).empty()) {
        answer.body += more;
      }
    }
    return answer;
  }

  Answer read_head(double seconds = 20) {
    Answer answer;
    const std::string head = read_until("\r\n\r\n", seconds);
    answer.status = std::stoi(head.substr(9, 3));
    for (size_t at = head.find("\r\n") + 2; at < head.size() - 2;) {
      const size_t end = head.find("\r\n", at);
      const size_t colon = head.find(": ", at);
      std::string name = head.substr(at, colon - at);
      for (char& c : name) {
        c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      }
      answer.headers[name] = head.substr(colon + 2, end - colon - 2);
      at = end + 2;
    }
    return answer;
  }

  // Nothing: it was the last.
  std::optional<std::string> read_chunk(double seconds = 20) {
    const size_t size = std::stoul(read_until("\r\n", seconds), nullptr, 16);
    std::string bytes = read_exactly(size, seconds);
    if (read_exactly(2, seconds) != "\r\n") {
      throw std::runtime_error("a chunk does not end where it should");
    }
    return size == 0 ? std::nullopt : std::optional(std::move(bytes));
  }

 protected:
  virtual ssize_t put(std::string_view bytes) {
    return ::send(socket_, bytes.data(), bytes.size(), kFlags);
  }
  virtual ssize_t take(char* into, size_t size, double seconds) {
    if (!readable(seconds)) {
      throw std::runtime_error("nothing came from the server");
    }
    return ::recv(socket_, into, size, 0);
  }
  int socket() const {
    return socket_;
  }

 private:
#ifdef MSG_NOSIGNAL
  static constexpr int kFlags = MSG_NOSIGNAL;
#else
  static constexpr int kFlags = 0;
#endif

  void connect(const sockaddr* address, socklen_t size) {
#ifdef SO_NOSIGPIPE
    const int on = 1;
    ::setsockopt(socket_, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof(on));
#endif
    if (::connect(socket_, address, size) != 0) {
      close();
      throw std::runtime_error("cannot connect");
    }
  }

  std::string read_exactly(size_t count, double seconds) {
    std::string text = std::exchange(held_, {});
    while (text.size() < count) {
      const std::string more = read_some(seconds);
      if (more.empty()) {
        throw std::runtime_error("the server closed in the middle");
      }
      text += more;
    }
    held_ = text.substr(count);
    text.resize(count);
    return text;
  }

  int socket_ = -1;
  std::string held_;
};

// Events of a stream of server-sent events: what stands behind "data: ".
inline std::vector<std::string> events(const std::string& text) {
  std::vector<std::string> out;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find("\n\n", at), text.size());
    const size_t data = text.find("data: ", at);
    if (data < end) {
      out.push_back(text.substr(data + 6, end - data - 6));
    }
    at = end + 2;
  }
  return out;
}

// Waits until it holds; false: it did not in time.
template <typename Holds>
bool soon(Holds holds, double seconds = 5) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > until) {
      return false;
    }
    ::usleep(1000);
  }
  return true;
}

}  // namespace quince::test
