#include "cli/service_notifier.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

#include <fmt/format.h>

namespace quince::cli {

namespace {

// A service is given up when it says nothing for so long while it starts.
constexpr int64_t kLoadingMicroseconds = 60'000'000;

}  // namespace

// Nothing depends on whether anybody hears it.
void ServiceNotifier::send(std::string_view message) const {
  sockaddr_un address{};
  if (socket_.empty() || socket_.size() >= sizeof(address.sun_path)) {
    return;
  }
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket_.data(), socket_.size());
  if (address.sun_path[0] == '@') {
    address.sun_path[0] = '\0';
  }
  const int descriptor = ::socket(AF_UNIX, SOCK_DGRAM, 0);
  if (descriptor < 0) {
    return;
  }
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());
  static_cast<void>(::sendto(
      descriptor,
      message.data(),
      message.size(),
      MSG_DONTWAIT,
      reinterpret_cast<const sockaddr*>(&address),
      size));
  ::close(descriptor);
}

void ServiceNotifier::loading(double fraction) const {
  send(fmt::format(
      "STATUS=loading the model, {:.0f}%\nEXTEND_TIMEOUT_USEC={}",
      fraction * 100,
      kLoadingMicroseconds));
}

void ServiceNotifier::ready(std::string_view status) const {
  send(fmt::format("READY=1\nSTATUS={}", status));
}

void ServiceNotifier::ending() const {
  send("STOPPING=1\nSTATUS=running answers end");
}

}  // namespace quince::cli
