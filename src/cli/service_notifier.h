// Tells whoever started this program as a service how it is: systemd's protocol of a datagram to
// the socket that NOTIFY_SOCKET names. Without such a name it does nothing. One thread at a time.
#pragma once

#include <string>
#include <string_view>

namespace quince::cli {

class ServiceNotifier {
 public:
  // socket: a path, or "@name" of an abstract one (Linux); "": nobody wants to know.
  explicit ServiceNotifier(std::string socket) : socket_(std::move(socket)) {}

  void loading(double fraction) const;  // STATUS, and more time to start
  void ready(std::string_view status) const;
  void ending() const;

 private:
  void send(std::string_view message) const;

  std::string socket_;
};

}  // namespace quince::cli
