// Runs the quince program itself and takes down what it says.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

extern char** environ;

namespace quince::test {

struct ProgramResult {
  int status = -1;  // exit status; 128 + signal when a signal ended it
  std::string out;
  std::string err;
};

inline std::string read_all(int file) {
  std::string text;
  char buffer[4096];
  ssize_t count = 0;
  while ((count = ::read(file, buffer, sizeof(buffer))) > 0) {
    text.append(buffer, static_cast<size_t>(count));
  }
  ::close(file);
  return text;
}

// pipe2 is Linux only.
inline bool make_pipe(int ends[2]) {
  return ::pipe(ends) == 0 && ::fcntl(ends[0], F_SETFD, FD_CLOEXEC) == 0 &&
         ::fcntl(ends[1], F_SETFD, FD_CLOEXEC) == 0;
}

// A started program; its pipes are ours.
class Program {
 public:
  explicit Program(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), QUINCE_BINARY);
    std::vector<char*> argv;
    for (std::string& argument : arguments) {
      argv.push_back(argument.data());
    }
    argv.push_back(nullptr);
    int in[2], out[2], err[2];
    if (!make_pipe(in) || !make_pipe(out) || !make_pipe(err)) {
      throw std::runtime_error("no pipes");
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    posix_spawn_file_actions_adddup2(&actions, err[1], 2);
    int error = posix_spawn(&process_, QUINCE_BINARY, &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    ::close(in[0]);
    ::close(out[1]);
    ::close(err[1]);
    input = in[1];
    output = out[0];
    errors = err[0];
    if (error != 0) {
      throw std::runtime_error("cannot start " QUINCE_BINARY);
    }
  }

  void send_input(const std::string& text) {
    std::string_view rest = text;
    while (!rest.empty()) {
      ssize_t written = ::write(input, rest.data(), rest.size());
      if (written <= 0) {
        break;
      }
      rest.remove_prefix(static_cast<size_t>(written));
    }
    ::close(input);
    input = -1;
  }

  void signal(int number) {
    if (process_ > 0) {  // -1 would be everybody
      ::kill(process_, number);
    }
  }

  ProgramResult finish() {
    if (input >= 0) {
      ::close(input);
    }
    ProgramResult result;
    std::thread reader([&] { result.err = read_all(errors); });
    result.out = output >= 0 ? read_all(output) : "";
    reader.join();
    int status = 0;
    waitpid(process_, &status, 0);
    result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return result;
  }

  int input = -1;
  int output = -1;
  int errors = -1;

 private:
  pid_t process_ = -1;
};

inline ProgramResult run_program(
    std::vector<std::string> arguments, const std::string& input = "") {
  Program program(std::move(arguments));
  program.send_input(input);
  return program.finish();
}

}  // namespace quince::test
