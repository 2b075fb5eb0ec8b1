// Ctrl-C and its relatives (SIGINT, SIGTERM, SIGHUP). Outside of a scope they end the program at
// once. While an InterruptScope lives, the first one calls its action instead, on a thread of its
// own, so the action may lock, cancel a stream, or set a flag; the third one ends the program all
// the same.
#pragma once

#include <atomic>
#include <functional>
#include <stdexcept>
#include <thread>

namespace quince::cli {

// The user asked to stop. Exit status 128 + signal.
struct Interrupted : std::runtime_error {
  explicit Interrupted(int signal) : std::runtime_error("interrupted"), signal(signal) {}
  int signal;
};

// At most one at a time.
class InterruptScope {
 public:
  explicit InterruptScope(std::function<void()> action);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  int signal() const {  // 0: none has come
    return signal_;
  }
  void check() const {  // throws Interrupted
    if (int signal = signal_) {
      throw Interrupted(signal);
    }
  }

 private:
  void watch();
  std::function<void()> action_;
  std::atomic<int> signal_ = 0;
  int read_end_ = -1;
  int write_end_ = -1;
  std::thread watcher_;
};

}  // namespace quince::cli
