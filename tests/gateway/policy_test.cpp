// Limits, queue, breaker, balance and retries, each for itself.
#include <limits>
#include <map>
#include <random>
#include <set>

#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>

#include "gateway/balance.h"
#include "gateway/breaker.h"
#include "gateway/fair_queue.h"
#include "gateway/key_limits.h"
#include "gateway/retry.h"

namespace quince::gateway {

namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Time at(double second) {
  return Time(seconds(1000)) + seconds(second);
}

KeyConfig limited(int concurrency, int64_t rpm, int64_t tpm) {
  KeyConfig key;
  key.concurrency = concurrency;
  key.rpm = rpm;
  key.tpm = tpm;
  return key;
}

TEST(KeyLimits, NoLimitsNoRefusal) {
  KeyLimits limits(KeyConfig{}, at(0));
  for (int i = 0; i < 10000; ++i) {
    ASSERT_FALSE(limits.begin(at(0)));
  }
  EXPECT_EQ(limits.running(), 10000);
}

TEST(KeyLimits, SoManyAtOnce) {
  KeyLimits limits(limited(2, 0, 0), at(0));
  EXPECT_FALSE(limits.begin(at(0)));
  EXPECT_FALSE(limits.begin(at(0)));
  const auto refusal = limits.begin(at(0));
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->reason, KeyLimits::Reason::concurrency);
  limits.end(0, at(1));
  EXPECT_FALSE(limits.begin(at(1)));
}

TEST(KeyLimits, SoManyAMinute) {
  KeyLimits limits(limited(0, 6, 0), at(0));
  for (int i = 0; i < 6; ++i) {
    ASSERT_FALSE(limits.begin(at(0)));
  }
  const auto refusal = limits.begin(at(0));
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->reason, KeyLimits::Reason::requests);
  EXPECT_NEAR(in_seconds(refusal->retry_after), 10, 1e-6);
  EXPECT_TRUE(limits.begin(at(9.9)));
  EXPECT_FALSE(limits.begin(at(10.1)));
  EXPECT_TRUE(limits.begin(at(10.1)));
}

TEST(KeyLimits, WhatRequestsTookBeyondTheirTokensIsPaidBack) {
  KeyLimits limits(limited(0, 0, 600), at(0));
  ASSERT_FALSE(limits.begin(at(0)));
  limits.end(900, at(0));  // 300 too many: 30 s
  const auto refusal = limits.begin(at(0));
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->reason, KeyLimits::Reason::tokens);
  EXPECT_NEAR(in_seconds(refusal->retry_after), 30.1, 1e-6);
  EXPECT_FALSE(limits.begin(at(30.2)));
}

// An upstream may claim any number: the wait must not turn around.
TEST(KeyLimits, NoNumberOfTokensIsTooLarge) {
  KeyLimits limits(limited(0, 0, 1), at(0));
  ASSERT_FALSE(limits.begin(at(0)));
  limits.end(std::numeric_limits<int64_t>::max(), at(0));
  const auto refusal = limits.begin(at(1));
  ASSERT_TRUE(refusal);
  EXPECT_GT(in_seconds(refusal->retry_after), 1e8);
  EXPECT_GT(at(1) + refusal->retry_after, at(1));
}

TEST(KeyLimits, NewLimitsDoNotForgiveWhatWasSpent) {
  KeyLimits limits(limited(0, 10, 0), at(0));
  for (int i = 0; i < 10; ++i) {
    ASSERT_FALSE(limits.begin(at(0)));
  }
  limits.set(limited(0, 12, 0), at(0));
  EXPECT_FALSE(limits.begin(at(0)));
  EXPECT_FALSE(limits.begin(at(0)));
  EXPECT_TRUE(limits.begin(at(0)));
  limits.set(limited(0, 0, 0), at(0));
  EXPECT_FALSE(limits.begin(at(0)));
}

// In any minute no more than twice the allowance (a full bucket and what comes back).
TEST(KeyLimits, HoldOverAnyHistory) {
  std::mt19937 random(7);
  KeyLimits limits(limited(0, 60, 0), at(0));
  double now = 0;
  int let_in = 0;
  while (now < 600) {
    now += std::uniform_real_distribution<>(0, 0.5)(random);
    let_in += limits.begin(at(now)) ? 0 : 1;
  }
  EXPECT_LE(let_in, 60 + 601);
  EXPECT_GE(let_in, 600);
}

TEST(FairQueue, PlacesThenTheQueueThenNo) {
  FairQueue queue(2, 1);
  EXPECT_THAT(queue.enter(1, "a", 0).granted, ElementsAre(1));
  EXPECT_THAT(queue.enter(2, "b", 0).granted, ElementsAre(2));
  EXPECT_THAT(queue.enter(3, "c", 0).granted, IsEmpty());
  EXPECT_THAT(queue.enter(4, "d", 0).dropped, ElementsAre(4));
  EXPECT_THAT(queue.leave(1).granted, ElementsAre(3));
  EXPECT_THAT(queue.leave(3).granted, IsEmpty());
  EXPECT_EQ(queue.running(), 1);
}

TEST(FairQueue, TenantsTakeTurnsHoweverMuchOneAsks) {
  FairQueue queue(1, 100);
  queue.enter(1, "greedy", 0);
  for (FairQueue::Ticket ticket = 2; ticket < 50; ++ticket) {
    queue.enter(ticket, "greedy", 0);
  }
  queue.enter(100, "modest", 0);
  EXPECT_THAT(queue.leave(1).granted, ElementsAre(100));
  EXPECT_THAT(queue.leave(100).granted, ElementsAre(2));
}

TEST(FairQueue, HigherPriorityComesFirst) {
  FairQueue queue(1, 10);
  queue.enter(1, "a", 0);
  queue.enter(2, "a", 0);
  queue.enter(3, "b", 5);
  queue.enter(4, "c", -5);
  EXPECT_THAT(queue.leave(1).granted, ElementsAre(3));
  EXPECT_THAT(queue.leave(3).granted, ElementsAre(2));
  EXPECT_THAT(queue.leave(2).granted, ElementsAre(4));
}

TEST(FairQueue, NobodyLocksOthersOutByFillingIt) {
  FairQueue queue(1, 4);
  queue.enter(1, "greedy", 0);
  for (FairQueue::Ticket ticket = 2; ticket <= 5; ++ticket) {
    queue.enter(ticket, "greedy", 0);
  }
  EXPECT_THAT(queue.enter(6, "greedy", 0).dropped, ElementsAre(6));
  EXPECT_THAT(queue.enter(7, "modest", 0).dropped, ElementsAre(5)) << "the newest one goes";
  EXPECT_THAT(queue.enter(8, "modest", 0).dropped, ElementsAre(4));
  EXPECT_THAT(queue.enter(9, "modest", 0).dropped, ElementsAre(9)) << "it has half of it";
  EXPECT_THAT(queue.enter(10, "urgent", 1).dropped, ElementsAre(8));
}

TEST(FairQueue, ResizingGrantsOrDrops) {
  FairQueue queue(1, 4);
  for (FairQueue::Ticket ticket = 1; ticket <= 5; ++ticket) {
    queue.enter(ticket, "a", 0);
  }
  const auto changes = queue.resize(2, 1);
  EXPECT_THAT(changes.granted, ElementsAre(2));
  EXPECT_THAT(changes.dropped, ElementsAre(5, 4));
  EXPECT_EQ(queue.waiting(), 1);
}

// Whatever happens: never more than there are places, no place stays free while somebody waits,
// nobody is told twice, nobody is forgotten.
TEST(FairQueue, KeepsItsPromisesOverRandomHistories) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const int places = 1 + static_cast<int>(random() % 4);
    FairQueue queue(places, static_cast<int>(random() % 8));
    std::set<FairQueue::Ticket> waiting;
    std::set<FairQueue::Ticket> running;
    FairQueue::Ticket last = 0;
    const auto take = [&](const FairQueue::Changes& changes) {
      for (const auto ticket : changes.granted) {
        ASSERT_EQ(waiting.erase(ticket), 1U);
        running.insert(ticket);
      }
      for (const auto ticket : changes.dropped) {
        ASSERT_EQ(waiting.erase(ticket), 1U);
      }
    };
    for (int step = 0; step < 300; ++step) {
      if (random() % 2 == 0) {
        waiting.insert(++last);
        take(queue.enter(
            last,
            std::string(1, static_cast<char>('a' + random() % 3)),
            static_cast<int>(random() % 2)));
      } else if (!running.empty()) {
        const auto ticket = *running.begin();
        running.erase(ticket);
        take(queue.leave(ticket));
      } else if (!waiting.empty()) {
        const auto ticket = *waiting.begin();
        waiting.erase(ticket);
        take(queue.leave(ticket));
      }
      ASSERT_EQ(queue.running(), static_cast<int>(running.size()));
      ASSERT_EQ(queue.waiting(), static_cast<int>(waiting.size()));
      ASSERT_LE(queue.running(), places);
      ASSERT_TRUE(queue.running() == places || queue.waiting() == 0);
    }
  }
}

BreakerConfig breaker_config() {
  return {.failures = 3, .open = 10, .most_open = 35};
}

void fail_until_open(Breaker& breaker, double second) {
  while (breaker.state(at(second)) != Breaker::State::open) {
    breaker.failed(breaker.begin(at(second)), at(second));
  }
}

TEST(Breaker, OpensAfterFailuresInARowOnly) {
  Breaker breaker(breaker_config());
  for (int i = 0; i < 10; ++i) {
    breaker.failed(breaker.begin(at(0)), at(0));
    breaker.failed(breaker.begin(at(0)), at(0));
    breaker.succeeded(breaker.begin(at(0)));
  }
  EXPECT_EQ(breaker.state(at(0)), Breaker::State::closed);
  fail_until_open(breaker, 0);
  EXPECT_FALSE(breaker.allows(at(9.9)));
  EXPECT_NEAR(in_seconds(breaker.wait(at(4))), 6, 1e-6);
}

TEST(Breaker, OneTriesThenAllMay) {
  Breaker breaker(breaker_config());
  fail_until_open(breaker, 0);
  EXPECT_EQ(breaker.state(at(10)), Breaker::State::half_open);
  ASSERT_TRUE(breaker.allows(at(10)));
  const auto era = breaker.begin(at(10));
  EXPECT_FALSE(breaker.allows(at(10))) << "only one";
  breaker.succeeded(era);
  EXPECT_TRUE(breaker.allows(at(10)));
  EXPECT_EQ(breaker.state(at(10)), Breaker::State::closed);
}

TEST(Breaker, StaysOpenLongerAfterEachFailedTrialUpToALimit) {
  Breaker breaker(breaker_config());
  fail_until_open(breaker, 0);
  breaker.failed(breaker.begin(at(10)), at(10));
  EXPECT_NEAR(in_seconds(breaker.wait(at(10))), 20, 1e-6);
  breaker.failed(breaker.begin(at(30)), at(30));
  EXPECT_NEAR(in_seconds(breaker.wait(at(30))), 35, 1e-6);
  breaker.succeeded(breaker.begin(at(65)));
  fail_until_open(breaker, 65);
  EXPECT_NEAR(in_seconds(breaker.wait(at(65))), 10, 1e-6) << "it had recovered";
}

TEST(Breaker, ATrialThatTellsNothingLetsTheNextOneTry) {
  Breaker breaker(breaker_config());
  fail_until_open(breaker, 0);
  breaker.gave_up(breaker.begin(at(10)));
  EXPECT_TRUE(breaker.allows(at(10)));
}

TEST(Breaker, WordFromBeforeItOpenedMeansNothing) {
  Breaker breaker(breaker_config());
  const auto early = breaker.begin(at(0));
  fail_until_open(breaker, 0);
  breaker.succeeded(early);
  EXPECT_EQ(breaker.state(at(1)), Breaker::State::open);
  breaker.failed(early, at(9));
  EXPECT_EQ(breaker.state(at(10)), Breaker::State::half_open) << "not opened anew";
}

TEST(Breaker, AHealthCheckLetsItTryAtOnce) {
  Breaker breaker(breaker_config());
  fail_until_open(breaker, 0);
  breaker.looks_well(at(1));
  EXPECT_EQ(breaker.state(at(1)), Breaker::State::half_open);
}

TEST(Balancer, WeightsAreKeptAndSpread) {
  Balancer balancer;
  const std::vector<Candidate> three{{5, 0, true}, {1, 0, true}, {1, 0, true}};
  std::string order;
  for (int i = 0; i < 7; ++i) {
    order += static_cast<char>('a' + *balancer.choose(Balance::weighted, three));
  }
  EXPECT_EQ(order, "aabacaa");
}

TEST(Balancer, LeastBusyForItsWeightAndEqualsTakeTurns) {
  Balancer balancer;
  EXPECT_EQ(
      balancer.choose(Balance::least_busy, std::vector<Candidate>{{1, 2, true}, {1, 1, true}}), 1U);
  EXPECT_EQ(
      balancer.choose(Balance::least_busy, std::vector<Candidate>{{4, 3, true}, {1, 1, true}}), 0U);
  std::map<size_t, int> chosen;
  const std::vector<Candidate> equal{{1, 1, true}, {1, 1, true}};
  for (int i = 0; i < 10; ++i) {
    ++chosen[*balancer.choose(Balance::least_busy, equal)];
  }
  EXPECT_EQ(chosen[0], 5);
}

TEST(Balancer, NeverOneThatCannotBeUsed) {
  Balancer balancer;
  EXPECT_FALSE(balancer.choose(Balance::weighted, {}));
  EXPECT_FALSE(balancer.choose(Balance::weighted, std::vector<Candidate>{{1, 0, false}}));
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(
        balancer.choose(Balance::weighted, std::vector<Candidate>{{9, 0, false}, {1, 0, true}}),
        1U);
  }
}

TEST(Retry, OnlyWhereNothingCanHaveBeenDoneTwice) {
  const ModelConfig model;
  const Situation all{.retries_left = 1, .within_budget = true, .another_upstream = true};
  for (const Outcome outcome : {Outcome::not_reached, Outcome::unavailable}) {
    EXPECT_EQ(next_step(outcome, all, model), Step::retry);
    EXPECT_EQ(next_step(outcome, {0, true, true, false}, model), Step::give_up);
    EXPECT_EQ(next_step(outcome, {1, false, true, false}, model), Step::give_up);
    EXPECT_EQ(next_step(outcome, {1, true, false, true}, model), Step::fall_back);
  }
  for (const Outcome outcome : {Outcome::failed, Outcome::broke, Outcome::refused_us}) {
    EXPECT_EQ(next_step(outcome, all, model), Step::give_up);
  }
}

TEST(Retry, NothingAfterTheClientHasSomething) {
  const ModelConfig model;
  const Situation all{1, true, true, true};
  for (const Outcome outcome :
       {Outcome::answered, Outcome::died, Outcome::abandoned, Outcome::client_error}) {
    EXPECT_EQ(next_step(outcome, all, model), Step::done);
  }
}

TEST(Retry, FallbacksWhereTheModelWantsThem) {
  ModelConfig model;
  model.on_error = false;
  const Situation fallback{0, false, false, true};
  EXPECT_EQ(next_step(Outcome::failed, fallback, model), Step::give_up);
  EXPECT_EQ(next_step(Outcome::too_long, fallback, model), Step::fall_back);
  EXPECT_EQ(next_step(Outcome::slow, fallback, model), Step::fall_back);
  model.on_context = model.on_latency = false;
  EXPECT_EQ(next_step(Outcome::too_long, fallback, model), Step::give_up);
  EXPECT_EQ(next_step(Outcome::slow, fallback, model), Step::give_up);
}

TEST(Retry, TheBudgetIsAShareOfTheRequestsAndAFew) {
  RetryBudget budget;
  int retries = 0;
  for (int i = 0; i < 1000; ++i) {
    budget.request(0.1);
    if (budget.allows()) {
      budget.take();
      ++retries;
    }
  }
  EXPECT_GE(retries, 100);
  EXPECT_LE(retries, 111);
}

}  // namespace

}  // namespace quince::gateway
