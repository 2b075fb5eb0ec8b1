#include "cli/interrupts.h"

#include <signal.h>

#include <chrono>

#include <gtest/gtest.h>

namespace quince::cli {
namespace {

using Handler = void (*)(int);

Handler handler_of(int number) {
  struct sigaction action{};
  sigaction(number, nullptr, &action);
  return action.sa_handler;
}

// The watcher tells it a moment after the signal.
bool comes(const InterruptScope& scope, int number) {
  auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (scope.signal() == 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return scope.signal() == number;
}

TEST(Interrupts, AScopeTakesSignalsAndGivesThemBack) {
  Handler before = handler_of(SIGINT);
  std::atomic<int> actions = 0;
  {
    InterruptScope scope([&] { actions++; });
    EXPECT_EQ(scope.signal(), 0);
    raise(SIGINT);
    EXPECT_TRUE(comes(scope, SIGINT));
    raise(SIGINT);  // two of three
    EXPECT_THROW(scope.check(), Interrupted);
  }
  EXPECT_EQ(actions, 1);
  EXPECT_EQ(handler_of(SIGINT), before);
}

TEST(Interrupts, WhatWasIgnoredStaysIgnored) {
  Handler before = signal(SIGHUP, SIG_IGN);  // as nohup does
  {
    IdleInterrupts idle;
    InterruptScope scope(nullptr);
    EXPECT_EQ(handler_of(SIGHUP), SIG_IGN);
    raise(SIGHUP);
    raise(SIGINT);
    EXPECT_TRUE(comes(scope, SIGINT));
  }
  EXPECT_EQ(handler_of(SIGHUP), SIG_IGN);
  signal(SIGHUP, before);
}

TEST(Interrupts, BetweenAnswersTheyWaitForTheNextAnswer) {
  IdleInterrupts idle;
  for (int i = 0; i < 5; i++) {
    idle.forgive();
    raise(SIGINT);
  }
  {
    InterruptScope scope(nullptr);
    EXPECT_TRUE(comes(scope, SIGINT));
  }
  idle.forgive();
  raise(SIGINT);
  idle.forgive();
  InterruptScope scope(nullptr);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(scope.signal(), 0);
}

TEST(Interrupts, TheThirdEndsTheProgram) {
  auto three_times = [] {
    InterruptScope scope(nullptr);
    for (int i = 0; i < 3; i++) {
      raise(SIGINT);
    }
  };
  EXPECT_EXIT(three_times(), testing::ExitedWithCode(130), "");
  auto while_idle = [] {
    IdleInterrupts idle;
    idle.forgive();
    for (int i = 0; i < 3; i++) {
      raise(SIGINT);
    }
  };
  EXPECT_EXIT(while_idle(), testing::ExitedWithCode(130), "");
  auto before_the_first_line = [] {
    IdleInterrupts idle;
    raise(SIGINT);
  };
  EXPECT_EXIT(before_the_first_line(), testing::ExitedWithCode(130), "");
  auto asked_to_leave = [] {
    IdleInterrupts idle;
    idle.forgive();
    raise(SIGTERM);
  };
  EXPECT_EXIT(asked_to_leave(), testing::ExitedWithCode(143), "");
}

}  // namespace
}  // namespace quince::cli
