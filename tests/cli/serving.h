// `quince serve` as a program of its own, for the length of a scope.
#pragma once

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cli/run_program.h"
#include "models/script_model.h"

namespace quince::test {

class ServeTest : public testing::Test {
 protected:
  static std::string model(Script kind, const std::string& name) {
    const auto folder = std::filesystem::path(testing::TempDir()) /
                        ("quince_serve_" + std::to_string(::getpid()) + "_" + name);
    if (!std::filesystem::exists(folder)) {
      write_script_model(folder, kind);
    }
    return folder.string();
  }
};

// A server that listens.
struct Serving {
  explicit Serving(std::vector<std::string> arguments)
      : program(with_defaults(std::move(arguments))) {
    char c = 0;
    while (::read(program.output, &c, 1) == 1 && c != '\n') {
      line += c;
    }
    const size_t at = line.find("://127.0.0.1:");
    port = at == std::string::npos ? 0 : std::atoi(line.c_str() + at + 13);
  }
  ~Serving() {
    program.signal(SIGKILL);
    if (!finished) {
      program.finish();
    }
  }
  ProgramResult finish() {
    finished = true;
    return program.finish();
  }

  static std::vector<std::string> with_defaults(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "serve");
    arguments.insert(arguments.end(), {"--port", "0", "--threads", "1"});
    return arguments;
  }

  Program program;
  std::string line;
  int port = 0;
  bool finished = false;
};

}  // namespace quince::test
