#include "engine/scheduler.h"

#include <algorithm>
#include <random>

#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>

namespace quince {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

SequenceSpec spec(SequenceId id, int64_t tokens, int priority = 0, std::string tenant = "") {
  SequenceSpec s;
  s.id = id;
  s.known = tokens;
  s.priority = priority;
  s.tenant = std::move(tenant);
  return s;
}

SchedulerOptions options(int step_tokens, int chunk) {
  SchedulerOptions o;
  o.step_tokens = step_tokens;
  o.prefill_chunk = chunk;
  o.pages.page_tokens = 4;
  return o;
}

std::vector<std::array<int64_t, 3>> rows(const Plan& plan) {
  std::vector<std::array<int64_t, 3>> out;
  for (const StepWork& work : plan.work) {
    out.push_back({static_cast<int64_t>(work.id), work.first, work.count});
  }
  return out;
}
using Row = std::array<int64_t, 3>;

TEST(Scheduler, PromptInChunksThenOneTokenAStep) {
  Scheduler scheduler(options(8, 8));
  ASSERT_TRUE(scheduler.add(spec(1, 18)));
  EXPECT_THAT(rows(scheduler.plan(0)), ElementsAre(Row{1, 0, 8}));
  EXPECT_THAT(rows(scheduler.plan(0)), ElementsAre(Row{1, 8, 8}));
  Plan last = scheduler.plan(0);
  EXPECT_THAT(rows(last), ElementsAre(Row{1, 16, 2}));
  EXPECT_TRUE(last.work[0].samples);
  EXPECT_THAT(rows(scheduler.plan(0)), ElementsAre(Row{1, 18, 1}));
  EXPECT_THAT(rows(scheduler.plan(0)), ElementsAre(Row{1, 19, 1}));
  scheduler.remove(1);
  EXPECT_THAT(rows(scheduler.plan(0)), IsEmpty());
  EXPECT_EQ(scheduler.stats().pages_held, 0);
}

TEST(Scheduler, ALongPromptDelaysDecodingByOneChunk) {
  Scheduler scheduler(options(512, 16));
  scheduler.add(spec(1, 3));
  scheduler.plan(0);
  scheduler.add(spec(2, 100));
  for (int step = 0; step < 7; ++step) {
    EXPECT_THAT(
        rows(scheduler.plan(0)),
        ElementsAre(Row{1, 3 + step, 1}, Row{2, 16 * step, step < 6 ? 16 : 4}));
  }
  EXPECT_THAT(rows(scheduler.plan(0)), ElementsAre(Row{1, 10, 1}, Row{2, 100, 1}));
}

// Readers that are slow must not keep others out, however many they are.
TEST(Scheduler, PausedSequencesLeaveTheirPlaceToOthers) {
  SchedulerOptions o = options(8, 8);
  o.max_running = 2;
  Scheduler scheduler(o);
  for (SequenceId id = 1; id <= 4; ++id) {
    scheduler.add(spec(id, 3));
  }
  EXPECT_THAT(rows(scheduler.plan(0)), ElementsAre(Row{1, 0, 3}, Row{2, 0, 3}));
  EXPECT_THAT(rows(scheduler.plan(0)), ElementsAre(Row{1, 3, 1}, Row{2, 3, 1}));
  scheduler.pause(1, true);
  EXPECT_THAT(rows(scheduler.plan(0)), ElementsAre(Row{2, 4, 1}, Row{3, 0, 3}));
  scheduler.pause(2, true);
  EXPECT_THAT(rows(scheduler.plan(0)), ElementsAre(Row{3, 3, 1}, Row{4, 0, 3}));
  // When they come back there are more than that for a while.
  scheduler.pause(1, false);
  scheduler.pause(2, false);
  EXPECT_EQ(rows(scheduler.plan(0)).size(), 4u);
  EXPECT_EQ(scheduler.stats().running, 4);
}

TEST(Scheduler, PromptsGetSmallerChunksWhileOthersDecode) {
  SchedulerOptions o = options(512, 16);
  o.prefill_beside = 5;
  Scheduler scheduler(o);
  scheduler.add(spec(1, 30));
  EXPECT_THAT(rows(scheduler.plan(0)), ElementsAre(Row{1, 0, 16}));
  EXPECT_THAT(rows(scheduler.plan(0)), ElementsAre(Row{1, 16, 14}));
  scheduler.add(spec(2, 20));
  EXPECT_THAT(rows(scheduler.plan(0)), ElementsAre(Row{1, 30, 1}, Row{2, 0, 5}));
  scheduler.remove(1);
  EXPECT_THAT(rows(scheduler.plan(0)), ElementsAre(Row{2, 5, 15}));
}

TEST(Scheduler, PriorityThenTenantThenArrival) {
  SchedulerOptions o = options(4, 4);
  o.max_running = 1;
  Scheduler scheduler(o);
  scheduler.add(spec(1, 4, 0, "greedy"));
  scheduler.plan(0);  // greedy has been served
  scheduler.add(spec(2, 4, 0, "greedy"));
  scheduler.add(spec(3, 4, 0, "modest"));
  scheduler.add(spec(4, 4, 1, "greedy"));
  std::vector<SequenceId> order;
  SequenceId current = 1;
  for (int i = 0; i < 3; ++i) {
    scheduler.remove(current);
    current = scheduler.plan(0).work.at(0).id;
    order.push_back(current);
  }
  EXPECT_THAT(order, ElementsAre(4, 3, 2));
}

TEST(Scheduler, TenantsGetEqualShares) {
  SchedulerOptions o = options(8, 8);
  o.max_running = 2;
  Scheduler scheduler(o);
  std::map<std::string, int> finished;
  std::map<SequenceId, std::string> owner;
  SequenceId next = 1;
  // One tenant floods, the other always has one request waiting.
  for (int i = 0; i < 50; ++i) {
    owner[next] = "flood";
    scheduler.add(spec(next++, 8, 0, "flood"));
  }
  bool waiting = false;
  for (int step = 0; step < 60; ++step) {
    if (!waiting) {
      owner[next] = "one";
      scheduler.add(spec(next++, 8, 0, "one"));
      waiting = true;
    }
    for (const StepWork& work : scheduler.plan(0).work) {
      if (work.samples) {
        ++finished[owner[work.id]];
        waiting = waiting && owner[work.id] != "one";
        scheduler.remove(work.id);
      }
    }
  }
  EXPECT_NEAR(finished["one"], finished["flood"], 2);
}

TEST(Scheduler, PreemptsTheLastWhenMemoryEnds) {
  SchedulerOptions o = options(16, 16);
  o.pages.limit = 4;  // of 4 tokens
  Scheduler scheduler(o);
  scheduler.add(spec(1, 7));
  scheduler.add(spec(2, 7));
  EXPECT_THAT(rows(scheduler.plan(0)), ElementsAre(Row{1, 0, 7}, Row{2, 0, 7}));
  EXPECT_THAT(rows(scheduler.plan(0)), ElementsAre(Row{1, 7, 1}, Row{2, 7, 1}));
  Plan plan = scheduler.plan(0);
  EXPECT_THAT(plan.preempted, ElementsAre(2));
  EXPECT_THAT(rows(plan), ElementsAre(Row{1, 8, 1}));
  EXPECT_EQ(scheduler.stats().preemptions, 1);
  scheduler.remove(1);
  // Nine tokens are known by now: seven of the prompt and two that were sampled.
  EXPECT_THAT(rows(scheduler.plan(0)), ElementsAre(Row{2, 0, 9}));
}

TEST(Scheduler, WhatCannotFitIsNamed) {
  SchedulerOptions o = options(16, 16);
  o.pages.limit = 2;
  Scheduler scheduler(o);
  scheduler.add(spec(1, 8));  // and one more token
  Plan plan = scheduler.plan(0);
  EXPECT_THAT(plan.impossible, ElementsAre(1));
  scheduler.add(spec(2, 7));
  EXPECT_THAT(rows(scheduler.plan(0)), ElementsAre(Row{2, 0, 7}));
  EXPECT_THAT(rows(scheduler.plan(0)), ElementsAre(Row{2, 7, 1}));
  plan = scheduler.plan(0);
  EXPECT_THAT(plan.impossible, ElementsAre(2));
  EXPECT_TRUE(scheduler.idle());
}

TEST(Scheduler, NothingIsComputedBehindTheLastToken) {
  Scheduler scheduler(options(16, 16));
  SequenceSpec two = spec(1, 4);
  two.limit = 2;
  scheduler.add(two);
  EXPECT_TRUE(scheduler.plan(0).work.at(0).samples);
  EXPECT_TRUE(scheduler.plan(0).work.at(0).samples);
  EXPECT_TRUE(scheduler.idle());
  EXPECT_THAT(rows(scheduler.plan(0)), IsEmpty());
  SequenceSpec none = spec(2, 20);
  none.limit = 0;
  scheduler.add(none);
  EXPECT_FALSE(scheduler.plan(0).work.at(0).samples);
  Plan last = scheduler.plan(0);
  EXPECT_THAT(rows(last), ElementsAre(Row{2, 16, 4}));
  EXPECT_FALSE(last.work.at(0).samples);
  EXPECT_TRUE(scheduler.idle());
}

TEST(Scheduler, DeadlinesPausesAndTheQueueLimit) {
  SchedulerOptions o = options(16, 16);
  o.max_running = 1;
  o.max_waiting = 1;
  Scheduler scheduler(o);
  SequenceSpec late = spec(1, 4);
  late.deadline = 10;
  EXPECT_TRUE(scheduler.add(late));
  EXPECT_TRUE(scheduler.add(spec(2, 4)));
  EXPECT_FALSE(scheduler.add(spec(3, 4)));
  EXPECT_THAT(rows(scheduler.plan(9)), ElementsAre(Row{1, 0, 4}));
  scheduler.pause(2, true);
  EXPECT_FALSE(scheduler.idle());
  EXPECT_THAT(scheduler.plan(10).expired, ElementsAre(1));
  EXPECT_TRUE(scheduler.idle());
  scheduler.pause(2, false);
  EXPECT_THAT(rows(scheduler.plan(11)), ElementsAre(Row{2, 0, 4}));
}

// A prompt whose tokens are known, for sharing.
SequenceSpec told(SequenceId id, const std::vector<int32_t>& tokens) {
  SequenceSpec s = spec(id, static_cast<int64_t>(tokens.size()));
  s.tokens = &tokens;
  return s;
}

TEST(Scheduler, DraftedTokensAreRunBesideAndSettled) {
  Scheduler scheduler(options(8, 8));
  SequenceSpec one = spec(1, 6);
  one.limit = 6;
  scheduler.add(one);
  scheduler.plan(0);  // samples token 1
  scheduler.draft(1, 3);
  Plan plan = scheduler.plan(0);
  EXPECT_THAT(rows(plan), ElementsAre(Row{1, 6, 4}));
  EXPECT_EQ(plan.work[0].drafted, 3);
  EXPECT_EQ(scheduler.stats().pages_held, 3);
  EXPECT_THAT(rows(scheduler.plan(0)), IsEmpty());  // waits to be settled
  EXPECT_TRUE(scheduler.idle());
  scheduler.settle(1, 1);  // tokens 1 and 2 of 6 were chosen, and 3 behind them
  EXPECT_EQ(scheduler.stats().pages_held, 2);
  scheduler.draft(1, 5);
  plan = scheduler.plan(0);
  EXPECT_THAT(rows(plan), ElementsAre(Row{1, 8, 3}));  // no further than to the limit
  EXPECT_EQ(plan.work[0].drafted, 2);
  scheduler.settle(1, 2);
  EXPECT_THAT(rows(scheduler.plan(0)), IsEmpty());  // all sampled
}

TEST(Scheduler, GoesOnFromWhatAnotherComputed) {
  Scheduler scheduler(options(64, 64));
  std::vector<int32_t> first{1, 2, 3, 4, 5, 6, 7, 8, 9};
  scheduler.add(told(1, first));
  Plan plan = scheduler.plan(0);
  ASSERT_EQ(plan.named.size(), 2u);
  EXPECT_EQ(plan.named[1].place, 1);
  // One that runs shares full pages, at once; the start of another page too.
  const std::vector<int32_t> second{1, 2, 3, 4, 5, 6, 70, 80};
  scheduler.add(told(2, second));
  plan = scheduler.plan(0);
  ASSERT_EQ(plan.adopted.size(), 1u);
  EXPECT_EQ(plan.adopted[0].tokens, 6);
  EXPECT_THAT(
      plan.adopted[0].pages, ElementsAre(plan.adopted[0].pages[0], plan.adopted[0].pages[1]));
  EXPECT_THAT(rows(plan), ElementsAre(Row{1, 9, 1}, Row{2, 6, 2}));
  EXPECT_EQ(scheduler.stats().pages_held, 3 + 1) << "the first page is held once";
  // The end of one that has ended is found as well, with what it sampled.
  first.push_back(10);
  const std::vector<NamedPage> saved = scheduler.remove(1);
  ASSERT_EQ(saved.size(), 1u);
  EXPECT_EQ(saved[0].place, 2);
  const std::vector<int32_t> third{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  scheduler.add(told(3, third));
  plan = scheduler.plan(0);
  ASSERT_EQ(plan.adopted.size(), 1u);
  EXPECT_EQ(plan.adopted[0].tokens, 10);
  // The last token must be run, whatever is known.
  const std::vector<int32_t> fourth{1, 2, 3, 4};
  scheduler.add(told(4, fourth));
  EXPECT_EQ(scheduler.plan(0).adopted.at(0).tokens, 3);
  SequenceSpec foreign = told(5, fourth);
  foreign.root = 7;
  scheduler.add(foreign);
  EXPECT_THAT(scheduler.plan(0).adopted, IsEmpty());
}

TEST(Scheduler, WaitsForAPrefixThatIsBeingComputed) {
  Scheduler scheduler(options(64, 8));
  std::vector<int32_t> first;
  for (int i = 0; i < 20; ++i) {
    first.push_back(i);
  }
  std::vector<int32_t> second = first;
  second.back() = 99;
  scheduler.add(told(1, first));
  scheduler.add(told(2, second));
  EXPECT_THAT(rows(scheduler.plan(0)), ElementsAre(Row{1, 0, 8}));
  EXPECT_THAT(rows(scheduler.plan(0)), ElementsAre(Row{1, 8, 8}));
  // The last page is another one.
  EXPECT_THAT(rows(scheduler.plan(0)), ElementsAre(Row{1, 16, 4}, Row{2, 16, 4}));
}

TEST(Scheduler, WhatFailedIsNotGoneOnFrom) {
  Scheduler scheduler(options(64, 64));
  const std::vector<int32_t> tokens(20, 1);
  scheduler.add(told(1, tokens));
  scheduler.plan(0);
  scheduler.forget_since(scheduler.step());
  scheduler.remove(1, false);
  EXPECT_EQ(scheduler.take_forgotten().size(), 5u);
  scheduler.add(told(2, tokens));
  EXPECT_THAT(rows(scheduler.plan(0)), ElementsAre(Row{2, 0, 20}));
  // A sequence whose logits are not numbers takes with it what it alone computed.
  scheduler.remove(2, false);
  scheduler.add(told(3, tokens));
  EXPECT_THAT(scheduler.plan(0).adopted, IsEmpty());
}

// With a window, pages that it has passed serve nobody, but for those at the end of a prompt; where
// prompts part, they are kept from the second time on.
// What is on its way from the disk: others go on meanwhile, and whoever begins likewise waits too.
TEST(Scheduler, WaitsForWhatIsElsewhereWhileOthersGoOn) {
  SchedulerOptions o = options(64, 64);
  std::vector<SequenceId> asked;
  o.elsewhere = [&](const Beginning& beginning) {
    asked.push_back(beginning.id);
    EXPECT_EQ(beginning.found, beginning.id == 3 ? 8 : 0);
    return beginning.id == 2;
  };
  Scheduler scheduler(o);
  const std::vector<int32_t> stored{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const std::vector<int32_t> other{7, 7, 7};
  const auto add = [&](SequenceId id, const std::vector<int32_t>& tokens) {
    SequenceSpec s = spec(id, std::ssize(tokens));
    s.tokens = &tokens;
    scheduler.add(s);
  };
  add(2, stored);
  EXPECT_THAT(rows(scheduler.plan(0)), IsEmpty());
  EXPECT_TRUE(scheduler.idle()) << "nothing to do until it comes";
  add(1, other);
  add(3, stored);
  EXPECT_THAT(rows(scheduler.plan(0)), ElementsAre(Row{1, 0, 3}));
  EXPECT_THAT(rows(scheduler.plan(0)), ElementsAre(Row{1, 3, 1}));
  EXPECT_THAT(asked, ElementsAre(2, 1));
  const auto taken = scheduler.arrived(2, {{0, {1, 2, 3, 4}, true}, {1, {5, 6, 7, 8}, true}});
  ASSERT_EQ(taken.size(), 2u);
  const Plan plan = scheduler.plan(0);
  EXPECT_THAT(rows(plan), ElementsAre(Row{1, 4, 1}, Row{2, 8, 2}, Row{3, 8, 2}));
  ASSERT_EQ(plan.adopted.size(), 2u);
  EXPECT_THAT(plan.adopted[0].pages, ElementsAre(taken[0].page, taken[1].page));
  EXPECT_EQ(plan.adopted[1].tokens, 8);
  EXPECT_TRUE(scheduler.arrived(2, {{2, {9, 10}, true}}).empty()) << "it does not wait any more";
  for (const SequenceId id : {1, 2, 3}) {
    scheduler.remove(id);
  }
  EXPECT_EQ(scheduler.stats().pages_held, 0);
}

TEST(Scheduler, AWindowKeepsWhatOthersGoOnFrom) {
  SchedulerOptions o = options(64, 8);
  o.pages.reach.window = 8;
  Scheduler scheduler(o);
  std::vector<int32_t> common;
  for (int i = 0; i < 40; ++i) {
    common.push_back(i);
  }
  std::vector<std::vector<int32_t>> prompts(4, common);
  for (int p = 0; p < 4; ++p) {
    for (int i = 0; i < 60; ++i) {
      prompts[static_cast<size_t>(p)].push_back(1000 * (p + 1) + i);
    }
  }
  std::vector<int64_t> adopted;
  const auto run = [&](SequenceId id, const std::vector<int32_t>& tokens) {
    SequenceSpec s = told(id, tokens);
    s.limit = 0;
    scheduler.add(s);
    int64_t from = 0;
    while (!scheduler.idle()) {
      for (const Adoption& adoption : scheduler.plan(0).adopted) {
        from = adoption.tokens;
      }
    }
    scheduler.remove(id);
    return from;
  };
  EXPECT_EQ(run(1, prompts[0]), 0);
  EXPECT_EQ(run(2, prompts[1]), 0) << "nobody knew that they would part there";
  EXPECT_EQ(run(3, prompts[2]), 40);
  EXPECT_EQ(run(4, prompts[3]), 40);
  std::vector<int32_t> longer = prompts[0];
  longer.push_back(5);
  EXPECT_EQ(run(5, longer), 100);
}

}  // namespace
}  // namespace quince
