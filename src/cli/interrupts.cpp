#include "cli/interrupts.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "cli/terminal.h"

namespace quince::cli {

namespace {

constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGHUP};
constexpr int kPatience = 3;  // presses until the program ends without asking anybody
constexpr char kStop = 0;     // written by the destructor

// A signal handler can reach nothing but statics. They belong to the living scope.
std::atomic<int> handler_pipe = -1;
std::atomic<int> presses = 0;
std::atomic<bool> forgiving = false;  // an IdleInterrupts that has forgiven
std::atomic<int> idle_wake = -1;
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void quince_on_signal(int signal) {
  int saved = errno;
  if (presses.fetch_add(1) + 1 >= kPatience) {
    restore_terminal();
    _exit(128 + signal);
  }
  char byte = static_cast<char>(signal);
  [[maybe_unused]] ssize_t written = write(handler_pipe, &byte, 1);
  errno = saved;
}

extern "C" void quince_on_idle_signal(int signal) {
  int saved = errno;
  if (signal != SIGINT || !forgiving || presses.fetch_add(1) + 1 >= kPatience) {
    restore_terminal();
    _exit(128 + signal);
  }
  char byte = static_cast<char>(signal);
  [[maybe_unused]] ssize_t written = write(idle_wake, &byte, 1);
  errno = saved;
}

}  // namespace

SignalHandlers::SignalHandlers(std::span<const int> signals, void (*handler)(int)) {
  struct sigaction action{};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (int signal : signals) {
    struct sigaction before{};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) {
      before_.emplace_back(signal, before);
      sigaction(signal, &action, nullptr);
    }
  }
}

SignalHandlers::~SignalHandlers() {
  for (const auto& [signal, before] : before_) {
    sigaction(signal, &before, nullptr);
  }
}

IdleInterrupts::IdleInterrupts(int wake) : handlers_(kSignals, quince_on_idle_signal) {
  idle_wake = wake;
}

IdleInterrupts::~IdleInterrupts() {
  forgiving = false;
  presses = 0;
  idle_wake = -1;
}

void IdleInterrupts::forgive() {
  presses = 0;
  forgiving = true;
}

InterruptScope::InterruptScope(std::function<void()> action) : action_(std::move(action)) {
  int ends[2];
  if (pipe(ends) != 0) {
    throw std::runtime_error("cannot make a pipe");
  }
  read_end_ = ends[0];
  write_end_ = ends[1];
  fcntl(read_end_, F_SETFD, FD_CLOEXEC);
  fcntl(write_end_, F_SETFD, FD_CLOEXEC);
  handler_pipe = write_end_;
  watcher_ = std::thread([this] { watch(); });
  handlers_.emplace(kSignals, quince_on_signal);
  if (presses > 0) {  // just before us: an IdleInterrupts was told what was meant for us
    constexpr char kSignal = SIGINT;
    [[maybe_unused]] ssize_t written = write(write_end_, &kSignal, 1);
  }
}

InterruptScope::~InterruptScope() {
  handlers_.reset();
  [[maybe_unused]] ssize_t written = write(write_end_, &kStop, 1);
  watcher_.join();
  handler_pipe = -1;
  presses = 0;
  close(read_end_);
  close(write_end_);
}

void InterruptScope::watch() {
  char byte = 0;
  while (true) {
    ssize_t count = read(read_end_, &byte, 1);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0 || byte == kStop) {
      return;
    }
    if (signal_.exchange(byte) == 0 && action_) {
      action_();
    }
  }
}

}  // namespace quince::cli
