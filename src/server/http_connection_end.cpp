#include "server/http_connection.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <bit>

#include <boost/asio/post.hpp>

namespace quince::server {

namespace {

constexpr size_t kReadAhead = size_t{16} << 10;  // of later requests, while a response is under way
// After the last response what the client still sends is thrown away: closing a socket with unread
// bytes would make the system throw away the response, and many clients read it only when they have
// sent all. Until the client is done, or quiet for kLinger, or has had its time.
constexpr std::chrono::seconds kLinger{2};
constexpr std::chrono::seconds kLongestLinger{30};
// For what is left of a request whose head is there when the server ends.
constexpr std::chrono::seconds kLastBody{5};

// How often it is looked whether a client that has ended its side has closed: more and more rarely.
constexpr std::chrono::milliseconds kFirstPress{5};
constexpr std::chrono::milliseconds kLastPress{500};

bool is_reset(int socket) {
  pollfd poll{socket, POLLOUT, 0};
  return ::poll(&poll, 1, 0) > 0 && (poll.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0;
}

}  // namespace

void Connection::close() {
  boost::system::error_code ignored;
  if (secured_ && idle_ && !gone_ && !over_) {
    stream_.last_word(shared_from_this());
  }
  gone_ = true;
  deadline_ = Clock::time_point::min();
  guard_timer_.cancel();
  static_cast<void>(stream_.socket().close(ignored));
  wake();
}

void Connection::close_if_idle() {
  if (idle_) {
    close();
  } else if (reading_) {
    set_deadline(std::min(deadline_, Clock::now() + kLastBody));
  }
}

// Closes the socket when the deadline has passed; whoever waits for it then fails. A request that
// has begun is only read no further: its client is told.
Task<void> Connection::guard() {
  boost::system::error_code ignored;
  while (stream_.socket().is_open()) {
    const auto until = deadline_;
    if (until <= Clock::now()) {
      if (reading_ && !std::exchange(late_, true)) {
        no_deadline();
        static_cast<void>(stream_.socket().cancel(ignored));
        continue;
      }
      close();
      break;
    }
    guard_timer_.expires_at(until);
    co_await guard_timer_.async_wait(to(ignored));
  }
}

void Connection::set_deadline(Clock::duration from_now) {
  set_deadline(Clock::now() + from_now);
}

void Connection::set_deadline(Clock::time_point deadline) {
  deadline_ = deadline;
  if (deadline < guard_timer_.expiry()) {
    guard_timer_.cancel();
  }
}

void Connection::no_deadline() {
  deadline_ = Clock::time_point::max();  // the guard finds out when it wakes
}

void Connection::wake() {
  woken_ = true;
  wake_timer_.cancel();
}

Task<bool> Connection::wait(Clock::time_point until) {
  if (!woken_) {
    boost::system::error_code ignored;
    wake_timer_.expires_at(until);
    co_await wake_timer_.async_wait(to(ignored));
  }
  co_return std::exchange(woken_, false);
}

std::function<void()> Connection::notifier() {
  return [weak = weak_from_this(), executor = stream_.get_executor()] {
    const auto self = weak.lock();
    if (self && !self->notified_.exchange(true)) {
      asio::post(executor, [self] {
        self->notified_ = false;
        self->wake();
      });
    }
  };
}

// Reads beside a response: that is how the end of the client is seen. What comes is kept for the
// next request.
void Connection::watch() {
  if (watching_ || ended_ || gone_ || buffer_.size() >= kReadAhead) {
    return;
  }
  watching_ = true;
  stream_.async_read_some(
      buffer_.prepare(kReadAtOnce),
      [self = shared_from_this()](const boost::system::error_code& error, size_t bytes) {
        self->watching_ = false;
        self->buffer_.commit(bytes);
        if (error == asio::error::eof && !self->stream_.secure() && !self->over_) {
          self->ended_ = true;
          self->press(1);
        } else if (error && error != asio::error::operation_aborted) {
          self->close();
        }
        self->wake();
      });
}

// The client has ended its side. That is also all that is seen of one that has closed, until
// something is sent to it, which it answers with a reset; so something is sent, and again: between
// the two may be a proxy that learns of it only by sending on. Who reads on gets its answer.
void Connection::press(unsigned round) {
  if (gone_ || over_) {
    return;
  }
  if (is_reset(stream_.socket().native_handle())) {
    close();
    return;
  }
  if (std::has_single_bit(round)) {  // there are few bytes to send, see await_news()
    pressed_ = true;
    wake();
  }
  const auto pause = std::min(kFirstPress * (1U << std::min(round - 1, 10U)), kLastPress);
  auto timer = std::make_shared<Timer>(stream_.get_executor(), pause);
  timer->async_wait([weak = weak_from_this(), timer, round](const boost::system::error_code&) {
    if (const auto self = weak.lock()) {
      self->press(round + 1);
    }
  });
}

// What that read has taken is kept, whole records only through TLS.
Task<void> Connection::end_watching() {
  if (watching_) {
    boost::system::error_code ignored;
    static_cast<void>(stream_.socket().cancel(ignored));
  }
  while (watching_) {
    co_await wait(Clock::time_point::max());
  }
}

Task<void> Connection::linger() {
  boost::system::error_code error;
  over_ = true;
  if (gone_ || !stream_.socket().is_open()) {
    co_return;
  }
  set_deadline(kLinger);
  if (secured_) {
    co_await end_watching();
    static_cast<void>(co_await stream_.say_goodbye());
    if (gone_) {
      co_return;
    }
  }
  static_cast<void>(stream_.socket().shutdown(Socket::shutdown_send, error));
  while (watching_) {
    co_await wait(Clock::time_point::max());
  }
  std::array<char, 16384> scratch{};
  const auto begin = Clock::now();
  const Clock::duration longest =
      std::min<Clock::duration>(shared_.options.body_time, kLongestLinger);
  while (!error && stream_.socket().is_open()) {
    const auto last = begin + (shared_.draining ? Clock::duration(kLinger) : longest);
    set_deadline(std::min(Clock::now() + kLinger, last));
    co_await stream_.socket().async_read_some(asio::buffer(scratch), to(error));
  }
}

}  // namespace quince::server
