// The program in odd surroundings: closed files, no home, arguments that are no text.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "cli/run_program.h"
#include "cli/tiny_folder.h"
#include "weights/files.h"

namespace quince {
namespace {

using test::ProgramResult;
using test::run_program;
using test::ScopedEnvironment;
using testing::HasSubstr;

class Surroundings : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new test::TempFolder;
    test::write_tiny_folder(*folder_ / "tiny");
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }
  static std::string model() {
    return *folder_ / "tiny";
  }
  // quince with these arguments and redirections as a shell does them; the exit status.
  static int shell(const std::string& arguments) {
    int status = std::system(("exec '" QUINCE_BINARY "' " + arguments).c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  static test::TempFolder* folder_;
};
test::TempFolder* Surroundings::folder_ = nullptr;

TEST_F(Surroundings, ClosedFilesAreNotTakenForOthers) {
  std::string good = *folder_ / "good";
  ASSERT_EQ(shell("convert " + model() + " " + good + " >/dev/null 2>&1"), 0);
  std::string text = test::read_file(good + "/model.safetensors");
  struct Case {
    std::string redirection;
    int status;
  };
  // Without standard output there is nothing that could be told; that is said, where one can.
  for (const auto& [redirection, status] :
       {Case{" >&- 2>/dev/null", 2},
        Case{" >/dev/null 2>&-", 0},
        Case{" <&- >/dev/null", 0},
        Case{" <&- >&- 2>&-", 2}}) {
    std::string out = *folder_ / "closed";
    EXPECT_EQ(shell("convert " + model() + " " + out + redirection), status) << redirection;
    EXPECT_EQ(test::read_file(out + "/model.safetensors"), text) << redirection;
    std::filesystem::remove_all(out);
    EXPECT_EQ(shell("run " + model() + " hi -n 2 " + redirection), status) << redirection;
    EXPECT_EQ(shell("bench " + model() + " -p 4 -n 2 -r 1 --no-bandwidth" + redirection), status)
        << redirection;
  }
}

TEST_F(Surroundings, ArgumentsThatAreNoText) {
  auto refused = [&](std::vector<std::string> more, const char* part) {
    std::vector<std::string> arguments{"run", model()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    ProgramResult result = run_program(arguments, "");
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.err, HasSubstr(part));
    EXPECT_THAT(result.err, HasSubstr("not UTF-8 text (byte 0xff at offset 1)"));
  };
  refused({"a\xff"}, "quince: the prompt: ");
  refused({"a\xff", "--raw"}, "quince: the prompt: ");
  refused({"-p", "a\xff"}, "quince: the prompt: ");
  refused({"a", "--system", "a\xff"}, "quince: --system: ");
  refused({"a", "--stop", "a\xff"}, "quince: --stop: ");
}

TEST_F(Surroundings, AnEmptyFileName) {
  ProgramResult result = run_program({"run", model(), "--file", ""});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("is empty"));
}

TEST_F(Surroundings, PromptsLongerThanTheContextAreNeverComputed) {
  for (const char* most : {"0", "1"}) {
    ProgramResult result = run_program({"run", model(), "--raw", std::string(65, 'x'), "-n", most});
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.err, HasSubstr("65 tokens"));
  }
  EXPECT_EQ(run_program({"run", model(), "--raw", std::string(64, 'x'), "-n", "0"}).status, 0);
}

// Sanitizers want more address space than a limit leaves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_F(Surroundings, MemoryThatRunsOutIsOneSentence) {
  std::string errors = *folder_ / "errors";
  for (int megabytes = 50; megabytes <= 350; megabytes += 15) {
    std::string limits = "ulimit -v " + std::to_string(megabytes << 10) + "; exec '";
    std::string command =
        limits + QUINCE_BINARY + "' run " + model() + " hi -n 2 -q >/dev/null 2>" + errors;
    int status = std::system(command.c_str());
    ASSERT_TRUE(WIFEXITED(status)) << megabytes << " MB";
    std::string text = test::read_file(errors);
    if (WEXITSTATUS(status) == 127) {
      continue;  // the system's loader itself had too little
    }
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), WEXITSTATUS(status) == 0 ? 0 : 1) << text;
    EXPECT_EQ(text.find("internal error"), std::string::npos) << text;
  }
}
#endif

}  // namespace
}  // namespace quince
