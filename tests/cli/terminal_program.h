// Runs the quince program on a pseudo terminal and holds the other end. Nothing here waits longer
// than a minute.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace quince::test {

class TerminalProgram {
 public:
  explicit TerminalProgram(std::vector<std::string> arguments, const char* kind = "xterm") {
    keys_ = posix_openpt(O_RDWR | O_NOCTTY);
    if (keys_ < 0 || grantpt(keys_) != 0 || unlockpt(keys_) != 0) {
      throw std::runtime_error("no pseudo terminal");
    }
    std::string name = ptsname(keys_);
    terminal_ = open(name.c_str(), O_RDWR | O_NOCTTY);  // ours too, so that it outlives the program
    fcntl(keys_, F_SETFD, FD_CLOEXEC);
    fcntl(terminal_, F_SETFD, FD_CLOEXEC);
    fcntl(keys_, F_SETFL, O_NONBLOCK);
    winsize size{24, 100, 0, 0};
    ioctl(terminal_, TIOCSWINSZ, &size);
    arguments.insert(arguments.begin(), QUINCE_BINARY);
    std::vector<char*> argv;
    for (std::string& argument : arguments) {
      argv.push_back(argument.data());
    }
    argv.push_back(nullptr);
    process_ = fork();
    if (process_ == 0) {
      setsid();
      int terminal = open(name.c_str(), O_RDWR);  // becomes the controlling terminal
#ifdef TIOCSCTTY
      ioctl(terminal, TIOCSCTTY, 0);
#endif
      for (int file : {0, 1, 2}) {
        dup2(terminal, file);
      }
      setenv("TERM", kind, 1);
      execv(QUINCE_BINARY, argv.data());
      _exit(127);
    }
  }

  ~TerminalProgram() {
    end_process();
    close(terminal_);
    close(keys_);
  }
  TerminalProgram(const TerminalProgram&) = delete;
  TerminalProgram& operator=(const TerminalProgram&) = delete;

  void type(std::string_view keys) {
    auto deadline = deadline_from_now();
    while (!keys.empty()) {
      ssize_t written = write(keys_, keys.data(), keys.size());
      if (written > 0) {
        keys.remove_prefix(static_cast<size_t>(written));
        continue;
      }
      if (Clock::now() > deadline) {
        ADD_FAILURE() << "the terminal takes no more keys";
        return;
      }
      read_some();  // a full screen may be what it waits for
    }
  }

  void resize(unsigned short rows, unsigned short columns) const {
    winsize size{rows, columns, 0, 0};
    ioctl(keys_, TIOCSWINSZ, &size);
  }

  void signal(int number) const {
    if (process_ > 0) {  // -1 would be everybody
      kill(process_, number);
    }
  }

  // Everything shown since the last call, up to and with `mark`.
  std::string read_until(std::string_view mark) {
    auto deadline = deadline_from_now();
    while (true) {
      size_t at = shown_.find(mark);
      if (at != std::string::npos) {
        std::string text = shown_.substr(0, at + mark.size());
        shown_.erase(0, at + mark.size());
        return text;
      }
      bool over = ended() || Clock::now() > deadline;
      if (!read_some() && over) {
        ADD_FAILURE() << "'" << mark << "' did not appear after: " << shown_;
        return std::exchange(shown_, "");
      }
    }
  }

  // Waits for the program to leave; exit status, or 128 + signal, or -1 when it does not.
  int finish() {
    auto deadline = deadline_from_now();
    while (!ended()) {
      read_some();
      if (Clock::now() > deadline) {
        ADD_FAILURE() << "the program does not end; it showed: " << shown_;
        end_process();
        return -1;
      }
    }
    while (read_some()) {
    }
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  }

  // What is shown and was not asked for yet.
  const std::string& rest() const {
    return shown_;
  }

  // Until the program has taken over the keys: no more echo, no more lines made by the terminal.
  void wait_for_raw_keys() {
    auto deadline = deadline_from_now();
    while (!ended() && (local_modes() & (ICANON | ECHO)) != 0) {
      if (Clock::now() > deadline) {
        ADD_FAILURE() << "the program does not take over the keys";
        return;
      }
      read_some();
    }
  }

  tcflag_t local_modes() const {
    termios settings{};
    tcgetattr(terminal_, &settings);
    return settings.c_lflag;
  }

 private:
  using Clock = std::chrono::steady_clock;

  static Clock::time_point deadline_from_now() {
    return Clock::now() + std::chrono::seconds(60);
  }

  // Waits a moment for more; false: nothing came.
  bool read_some() {
    pollfd wait{keys_, POLLIN, 0};
    char buffer[4096];
    if (poll(&wait, 1, 5) <= 0) {
      return false;
    }
    ssize_t count = read(keys_, buffer, sizeof(buffer));
    if (count <= 0) {
      return false;
    }
    shown_.append(buffer, static_cast<size_t>(count));
    return true;
  }

  bool ended() {
    if (process_ > 0 && waitpid(process_, &status_, WNOHANG) == process_) {
      process_ = -1;
    }
    return process_ < 0;
  }

  void end_process() {
    if (!ended()) {
      kill(process_, SIGKILL);
      waitpid(process_, &status_, 0);
      process_ = -1;
    }
  }

  int keys_ = -1;
  int terminal_ = -1;
  pid_t process_ = -1;
  int status_ = 0;
  std::string shown_;
};

}  // namespace quince::test
