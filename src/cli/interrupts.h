// Ctrl-C and its relatives (SIGINT, SIGTERM, SIGHUP). Outside of a scope they end the program at
// once. While an InterruptScope lives, the first one calls its action instead, on a thread of its
// own, so the action may lock, cancel a stream, or set a flag; the third one ends the program all
// the same. A signal that was ignored when the program started (nohup) stays ignored.
#pragma once

#include <signal.h>

#include <atomic>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace quince::cli {

// The user asked to stop. Exit status 128 + signal.
struct Interrupted : std::runtime_error {
  explicit Interrupted(int signal) : std::runtime_error("interrupted"), signal(signal) {}
  int signal;
};

// A handler for some signals while it lives. What they did before they will do again; one that was
// ignored stays ignored.
class SignalHandlers {
 public:
  SignalHandlers(std::span<const int> signals, void (*handler)(int));
  ~SignalHandlers();
  SignalHandlers(const SignalHandlers&) = delete;
  SignalHandlers& operator=(const SignalHandlers&) = delete;

 private:
  std::vector<std::pair<int, struct sigaction>> before_;
};

// For a chat, outside of its answers: signals end the program with the terminal as it was found.
// But after a `forgive` Ctrl-C does nothing until the third, or until an InterruptScope begins,
// which then counts as interrupted.
class IdleInterrupts {
 public:
  // wake: a descriptor that gets a byte for each Ctrl-C, or -1.
  explicit IdleInterrupts(int wake = -1);
  ~IdleInterrupts();
  void forgive();  // what came until now

 private:
  SignalHandlers handlers_;
};

// At most one at a time; it may live within the life of an IdleInterrupts.
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
  std::optional<SignalHandlers> handlers_;
};

}  // namespace quince::cli
