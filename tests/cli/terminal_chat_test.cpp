// The interactive chat on a real (pseudo) terminal: keys, pastes, Ctrl-C, leaving.
#include <chrono>
#include <thread>

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "cli/run_program.h"
#include "cli/terminal_program.h"
#include "cli/tiny_folder.h"
#include "weights/files.h"

namespace quince {
namespace {

using test::TerminalProgram;
using testing::HasSubstr;

// Keys at all moments of an answer: before, within, after.
constexpr std::chrono::microseconds kMoments[] = {
    std::chrono::microseconds(0),
    std::chrono::microseconds(50),
    std::chrono::microseconds(200),
    std::chrono::microseconds(500),
    std::chrono::microseconds(1000),
    std::chrono::microseconds(2000),
    std::chrono::microseconds(4000),
    std::chrono::microseconds(8000),
};

class TerminalChat : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new test::TempFolder;
    test::write_tiny_folder(*folder_ / "tiny");
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }
  std::vector<std::string> chat(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"run", *folder_ / "tiny", "--temp", "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  static test::TempFolder* folder_;
  test::ScopedEnvironment history_{"QUINCE_HISTORY", ""};
};
test::TempFolder* TerminalChat::folder_ = nullptr;

TEST_F(TerminalChat, AsksAnswersAndLeaves) {
  TerminalProgram program(chat({"-n", "3", "-v"}));
  EXPECT_THAT(program.read_until(">>> "), HasSubstr("/help lists the commands"));
  program.type("hi\r");
  EXPECT_THAT(program.read_until(">>> "), HasSubstr("3 generated"));
  program.type("/stats\r");
  EXPECT_THAT(program.read_until(">>> "), HasSubstr("1 answers"));
  program.type("\x04");
  EXPECT_EQ(program.finish(), 0);
}

TEST_F(TerminalChat, PastedLinesAreOneMessage) {
  std::string saved = *folder_ / "pasted.json";
  TerminalProgram program(chat({"-n", "1"}));
  program.read_until(">>> ");
  program.type("\x1b[200~one\rtwo\x1b[201~ three\r");
  program.read_until(">>> ");
  std::string many;
  for (int i = 0; i < 12; i++) {
    many += std::to_string(i) + "\r";
  }
  program.type("sum: \x1b[200~" + many + "\x1b[201~\r");
  program.read_until("[pasted 13 lines]");
  program.read_until(">>> ");
  program.type("/save " + saved + "\r");
  program.read_until("saved to");
  program.read_until(">>> ");
  program.type("/quit\r");
  EXPECT_EQ(program.finish(), 0);
  auto messages = boost::json::parse(test::read_file(saved)).at("messages").as_array();
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_EQ(messages[0].at("content"), "one\ntwo three");
  EXPECT_EQ(messages[2].at("content"), "sum: 0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n");
}

TEST_F(TerminalChat, InterruptsDropALineAndThenLeave) {
  TerminalProgram program(chat({"-n", "1"}));
  program.read_until(">>> ");
  program.type("half a li\x03");
  program.read_until(">>> ");
  program.type("\x03");
  program.read_until("Ctrl-C again");
  program.read_until(">>> ");
  program.type("\x03");
  EXPECT_EQ(program.finish(), 0);
}

TEST_F(TerminalChat, MistakesDoNotEndIt) {
  TerminalProgram program(chat({"-n", "1"}));
  program.read_until(">>> ");
  program.type("/hlep\r");
  EXPECT_THAT(program.read_until(">>> "), HasSubstr("did you mean /help?"));
  program.type(std::string(200, 'x') + "\r");
  program.read_until("context");
  program.read_until(">>> ");
  program.type("/he\t\r");  // Tab completes
  EXPECT_THAT(program.read_until("Ctrl-C stops"), HasSubstr("/reset"));
  program.read_until(">>> ");
  program.type("\x04");
  EXPECT_EQ(program.finish(), 0);
}

TEST_F(TerminalChat, HistoryLasts) {
  std::string file = *folder_ / "history";
  test::ScopedEnvironment history("QUINCE_HISTORY", file.c_str());
  {
    TerminalProgram program(chat({"-n", "1"}));
    program.read_until(">>> ");
    program.type("unforgettable\r");
    program.read_until(">>> ");
    program.type("\x04");
    EXPECT_EQ(program.finish(), 0);
  }
  TerminalProgram program(chat({"-n", "1"}));
  program.read_until(">>> ");
  program.type("\x1b[A");  // up
  program.read_until("unforgettable");
  program.type("\x03");
  program.read_until(">>> ");
  program.type("\x04");
  EXPECT_EQ(program.finish(), 0);
}

TEST_F(TerminalChat, WhatIsTypedAheadIsKept) {
  for (auto pause : kMoments) {
    TerminalProgram program(chat({"-n", "2"}));
    program.wait_for_raw_keys();  // the model is not loaded yet
    for (std::string_view keys : {"hi\r", "/st", "ats\r", "\x04"}) {
      program.type(keys);
      std::this_thread::sleep_for(pause);
    }
    EXPECT_EQ(program.finish(), 0);
    EXPECT_THAT(program.rest(), HasSubstr("1 answers"));
  }
}

TEST_F(TerminalChat, CtrlCAtAnyMomentDoesNotEndIt) {
  for (auto pause : kMoments) {
    TerminalProgram program(chat({"-n", "20", "--ignore-eos"}));
    program.read_until(">>> ");
    for (int i = 0; i < 5; i++) {
      program.type("hi\r");
      std::this_thread::sleep_for(pause);
      program.type("\x03");
      std::this_thread::sleep_for(pause);
      program.type("/stats\r");
      EXPECT_THAT(program.read_until("all: "), HasSubstr("last: "));
    }
    program.type("\x04");
    EXPECT_EQ(program.finish(), 0);
  }
}

TEST_F(TerminalChat, CtrlCEndsALoadAtOnce) {
  TerminalProgram program(chat());
  program.wait_for_raw_keys();
  program.signal(SIGSTOP);  // still loading, most likely; else it is a Ctrl-C at the prompt
  program.type("\x03\x03");
  program.signal(SIGCONT);
  EXPECT_THAT(program.finish(), testing::AnyOf(130, 0));
}

TEST_F(TerminalChat, LeavesTheTerminalAsItWas) {
  for (std::string_view keys : {"\x04", "\x03\x03", "/quit\r"}) {
    TerminalProgram program(chat());
    tcflag_t before = program.local_modes();
    program.read_until(">>> ");
    program.type(keys);
    EXPECT_EQ(program.finish(), 0);
    EXPECT_EQ(program.local_modes(), before);
    EXPECT_THAT(program.rest(), HasSubstr("\x1b[?2004l"));
  }
  for (int number : {SIGTERM, SIGHUP}) {
    TerminalProgram program(chat());
    tcflag_t before = program.local_modes();
    program.read_until(">>> ");
    program.signal(number);
    EXPECT_EQ(program.finish(), 128 + number);
    EXPECT_EQ(program.local_modes(), before);
    EXPECT_THAT(program.rest(), HasSubstr("\x1b[?2004l"));
  }
}

TEST_F(TerminalChat, AModelThatIsNotThereLeavesTheTerminalAsItWas) {
  TerminalProgram program({"run", *folder_ / "nowhere"});
  tcflag_t before = program.local_modes();
  EXPECT_EQ(program.finish(), 2);
  EXPECT_EQ(program.local_modes(), before);
}

TEST_F(TerminalChat, WindowsOfAllSizes) {
  for (const char* kind : {"xterm", "dumb"}) {
    TerminalProgram program(chat({"-n", "1", "-c", "512"}), kind);
    program.read_until(">>> ");
    std::string typed;
    for (auto [rows, columns] : {std::pair<int, int>{5, 3}, {1, 1}, {50, 200}, {2, 2}, {24, 80}}) {
      program.resize(static_cast<unsigned short>(rows), static_cast<unsigned short>(columns));
      program.type("abcdefghij \x1b[D\x1b[D\x1b[C\x1b[C");
      typed += "abcdefghij ";
    }
    std::string saved = *folder_ / "sizes.json";
    program.type("\r");
    program.read_until(">>> ");
    program.type("/save " + saved + "\r");
    program.read_until("saved to");
    program.type("\x04");
    EXPECT_EQ(program.finish(), 0);
    auto messages = boost::json::parse(test::read_file(saved)).at("messages").as_array();
    EXPECT_EQ(messages.at(0).at("content").as_string(), typed);
    std::filesystem::remove(saved);
  }
}

// As a shell's job control does it, and as somebody does who sends a signal.
TEST_F(TerminalChat, StoppedContinuedInterruptedFromOutside) {
  TerminalProgram program(chat({"-n", "1"}));
  program.read_until(">>> ");
  program.type("hel");
  program.read_until("hel");
  program.signal(SIGSTOP);
  program.signal(SIGCONT);
  program.read_until("hel");  // drawn again
  program.type("lo\r");
  program.read_until(">>> ");
  program.type("\x1a");  // no shell is there to stop it for
  program.type("/stats\r");
  program.read_until("1 answers");
  program.read_until(">>> ");
  program.signal(SIGINT);
  program.read_until("Ctrl-C again");
  program.read_until(">>> ");
  program.type("\x04");
  EXPECT_EQ(program.finish(), 0);
}

TEST_F(TerminalChat, OddTerminals) {
  for (const char* kind : {"dumb", "", "unheard-of"}) {
    TerminalProgram program(chat({"-n", "2"}), kind);
    program.read_until(">>> ");
    program.type("hi\r/stats\r");
    program.read_until("1 answers");
    program.type("\x04");
    EXPECT_EQ(program.finish(), 0);
    bool able = std::string_view(kind) == "unheard-of";  // most new ones are
    EXPECT_EQ(program.rest().find("\x1b[?2004l") != std::string::npos, able);
  }
}

TEST_F(TerminalChat, ATerminalGetsASpeedLine) {
  TerminalProgram program({"run", *folder_ / "tiny", "hi", "-n", "3", "--temp", "0"});
  EXPECT_THAT(program.read_until("first token"), HasSubstr("3 generated"));
  EXPECT_EQ(program.finish(), 0);
}

}  // namespace
}  // namespace quince
