// A server of OpenAI's API that does what a script says, right or wrong. What it does with a
// request is the request's model: the name of one of the cases in answer().
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <boost/json.hpp>

namespace quince::test {

class FaultUpstream {
 public:
  FaultUpstream() {
    listen(0);
  }
  ~FaultUpstream() {
    stop();
  }
  FaultUpstream(const FaultUpstream&) = delete;
  FaultUpstream& operator=(const FaultUpstream&) = delete;

  int port() const {
    return port_;
  }
  std::string url() const {
    return "http://127.0.0.1:" + std::to_string(port_) + "/v1";
  }
  // The process is gone: connections are reset, nobody listens.
  void stop() {
    if (stopping_.exchange(true)) {
      return;
    }
    acceptor_.join();
    ::close(listener_);
    {
      const std::scoped_lock lock(mutex_);
      for (const int socket : open_) {
        ::shutdown(socket, SHUT_RDWR);
      }
    }
    while (threads_ > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  void restart() {
    stopping_ = false;
    listen(port_);
  }

  // Overrides what the model says: "": nothing does.
  void set_mode(const std::string& mode) {
    const std::scoped_lock lock(mutex_);
    mode_ = mode;
  }

  std::atomic<int> connections = 0;  // ever
  std::atomic<int> requests = 0;
  std::atomic<int> left = 0;     // those who waited for an answer went away
  std::atomic<size_t> sent = 0;  // bytes of "flood"
  std::atomic<int> at_once = 0;
  std::atomic<int> most_at_once = 0;

  std::string last_request() {
    const std::scoped_lock lock(mutex_);
    return last_;
  }

 private:
#ifdef MSG_NOSIGNAL
  static constexpr int kFlags = MSG_NOSIGNAL;
#else
  static constexpr int kFlags = 0;
#endif

  void listen(int port) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    const int on = 1;
    ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        ::listen(listener_, 1024) != 0) {
      throw std::runtime_error("the upstream cannot listen");
    }
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept(); });
  }

  void accept() {
    while (!stopping_) {
      pollfd poll{listener_, POLLIN, 0};
      const int socket = ::poll(&poll, 1, 10) > 0 ? ::accept(listener_, nullptr, nullptr) : -1;
      if (socket < 0) {
        continue;
      }
#ifdef SO_NOSIGPIPE
      const int on = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof(on));
#endif
      ++connections;
      ++threads_;
      {
        const std::scoped_lock lock(mutex_);
        open_.insert(socket);
      }
      std::thread([this, socket] {
        serve(socket);
        {
          const std::scoped_lock lock(mutex_);
          open_.erase(socket);
        }
        ::close(socket);
        --threads_;
      }).detach();
    }
  }

  void serve(int socket) {
    std::string held;
    while (!stopping_) {
      const std::string request = read_request(socket, held);
      if (request.empty()) {
        return;
      }
      ++requests;
      const int now = ++at_once;
      int most = most_at_once;
      while (now > most && !most_at_once.compare_exchange_weak(most, now)) {
      }
      const bool goes_on = answer(socket, request);
      --at_once;
      if (!goes_on) {
        return;
      }
    }
  }

  static std::string read_request(int socket, std::string& held) {
    while (true) {
      const size_t head = held.find("\r\n\r\n");
      if (head != std::string::npos) {
        const size_t at = held.find("Content-Length: ");
        const size_t length = at < head ? std::stoul(held.substr(at + 16)) : 0;
        if (held.size() >= head + 4 + length) {
          std::string request = held.substr(0, head + 4 + length);
          held.erase(0, head + 4 + length);
          return request;
        }
      }
      char buffer[16384];
      const ssize_t count = ::recv(socket, buffer, sizeof(buffer), 0);
      if (count <= 0) {
        return "";
      }
      held.append(buffer, static_cast<size_t>(count));
    }
  }

  static bool send(int socket, std::string_view text) {
    while (!text.empty()) {
      const ssize_t count = ::send(socket, text.data(), text.size(), kFlags);
      if (count <= 0) {
        return false;
      }
      text.remove_prefix(static_cast<size_t>(count));
    }
    return true;
  }

  static bool send_json(
      int socket, int status, const std::string& body, const std::string& headers = "") {
    return send(
        socket,
        "HTTP/1.1 " + std::to_string(status) + " X\r\nContent-Type: application/json\r\n" +
            headers + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  }

  static std::string chunk(const std::string& text) {
    char size[32];
    std::snprintf(size, sizeof(size), "%zx\r\n", text.size());
    return size + text + "\r\n";
  }

  static constexpr const char* kStreamHead =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
  static std::string event(int number) {
    return "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"t" + std::to_string(number) +
           "\"}}],\"sequence_number\":" + std::to_string(number) + "}\n\n";
  }
  static constexpr const char* kUsage =
      "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":3}}\n\n";

  static void reset(int socket) {
    const linger now{1, 0};
    ::setsockopt(socket, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  }

  // Until the other side has gone, or this one stops.
  void hang(int socket) {
    pollfd poll{socket, POLLIN, 0};
    while (!stopping_ && ::poll(&poll, 1, 20) == 0) {
    }
    ++left;
  }

  // False: the connection is over.
  bool answer(int socket, const std::string& request) {
    const std::string body = request.substr(request.find("\r\n\r\n") + 4);
    std::string mode;
    if (!body.empty()) {
      boost::system::error_code error;
      const auto value = boost::json::parse(body, error);
      mode = error ? "" : std::string(value.at("model").as_string());
    }
    {
      const std::scoped_lock lock(mutex_);
      last_ = request;
      mode = mode_.empty() ? mode : mode_;
    }
    if (body.empty() || mode == "fine") {
      return send_json(
          socket, 200, R"({"ok":true,"usage":{"prompt_tokens":7,"completion_tokens":2}})");
    }
    return mode.find("stream") != std::string::npos ? answer_stream(socket, mode)
                                                    : answer_whole(socket, mode);
  }

  static std::string many_headers() {
    std::string head = "HTTP/1.1 200 OK\r\n";
    for (int i = 0; i < 8000; ++i) {
      head += "X-" + std::to_string(i) + ": y\r\n";
    }
    return head + "\r\n";
  }

  bool answer_whole(int socket, const std::string& mode) {
    if (mode == "status500" || mode == "status503" || mode == "status429" || mode == "status401" ||
        mode == "status502" || mode == "status404") {
      return send_json(
          socket,
          std::stoi(mode.substr(6)),
          R"({"error":{"message":"said the upstream","type":"x"}})",
          "Retry-After: 7\r\n");
    }
    if (mode == "page500") {
      return send_json(socket, 500, "<html>oops</html>");
    }
    if (mode == "page400") {
      return send_json(socket, 400, "<html>oops</html>");
    }
    if (mode == "too_long") {
      return send_json(
          socket, 400, R"({"error":{"message":"too long","code":"context_length_exceeded"}})");
    }
    if (mode == "redirect") {
      return send_json(socket, 302, "", "Location: http://127.0.0.1:1/\r\n");
    }
    if (mode == "hints") {
      return send(socket, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n") &&
             send_json(socket, 200, R"({"ok":true})");
    }
    if (mode == "slow") {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      return send_json(socket, 200, R"({"ok":true})");
    }
    if (mode == "close_after") {
      send_json(socket, 200, R"({"ok":true})");
      return false;  // without a word about it
    }
    if (mode == "until_close") {
      send(socket, "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{\"ok\":true}");
      return false;
    }
    if (mode == "hang") {
      hang(socket);
    } else if (mode == "reset") {
      reset(socket);
    } else if (mode == "garbage") {
      send(socket, std::string("\x16\x03\x01 garbage \0 no http at all\r\n\r\n", 32));
    } else if (mode == "half_head") {
      send(socket, "HTTP/1.1 200 OK\r\nContent-Ty");
    } else if (mode == "half_body") {
      send(socket, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"ok\":");
    } else if (mode == "hang_body") {
      send(socket, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"ok\":");
      hang(socket);
    } else if (mode == "huge_head") {
      send(socket, "HTTP/1.1 200 OK\r\nX-Huge: " + std::string(200000, 'x'));
      hang(socket);
    } else if (mode == "many_heads") {
      static const std::string head = many_headers();
      send(socket, head);
    } else if (mode == "two_lengths") {
      send(socket, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 5\r\n\r\n{}abc");
    }
    return false;
  }

  bool answer_stream(int socket, const std::string& mode) {
    if (mode == "flood_stream") {
      send(socket, kStreamHead);
      const std::string piece = chunk("data: " + std::string(16000, 'x') + "\n\n");
      while (!stopping_ && send(socket, piece)) {
        sent += piece.size();
      }
      ++left;
      return false;
    }
    if (mode == "late_stream") {  // the head at once, the answer later
      send(socket, kStreamHead);
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      return send(socket, chunk(event(1)) + chunk("data: [DONE]\n\n") + "0\r\n\r\n");
    }
    if (!send(socket, kStreamHead) || !send(socket, chunk(event(1)) + chunk(event(2)))) {
      return false;
    }
    if (mode == "fine_stream") {
      return send(
          socket, chunk(event(3)) + chunk(kUsage) + chunk("data: [DONE]\n\n") + "0\r\n\r\n");
    }
    if (mode == "slow_stream") {
      for (int i = 3; i < 8; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        const std::string text = chunk(event(i));
        send(socket, text.substr(0, 9));  // not even chunks come whole
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        send(socket, text.substr(9));
      }
      return send(socket, chunk("data: [DONE]\n\n") + "0\r\n\r\n");
    }
    if (mode == "hang_stream") {
      hang(socket);
    } else if (mode == "reset_stream") {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      reset(socket);
    } else if (mode == "cut_stream") {  // in the middle of an event
      send(socket, chunk("data: {\"choices\":[{\"ind"));
    } else if (mode == "garbage_stream") {
      send(socket, "zz no chunk\r\n\r\n");
    } else if (mode == "done_stream") {  // all is said, but the framing is not ended
      send(socket, chunk("data: [DONE]\n\n"));
    }
    return false;
  }

  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stopping_ = false;
  std::atomic<int> threads_ = 0;
  std::thread acceptor_;
  std::mutex mutex_;
  std::set<int> open_;
  std::string mode_;
  std::string last_;
};

}  // namespace quince::test
