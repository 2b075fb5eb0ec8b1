// What ends reasoning that has had its tokens: a fake model that counts, one token a byte.
#include "engine/reasoning_budget.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/fakes.h"

namespace quince::test {

namespace {

constexpr int kVocab = 260;

std::string byte_of(int32_t token) {
  return std::string(1, static_cast<char>(token));
}

ReasoningBudget budget(int tokens, bool inside, const std::string& closing = "</t>") {
  ReasoningBudget out;
  out.tokens = tokens;
  out.inside = inside;
  out.begin = "<t>";
  out.end = "</t>";
  out.closing.assign(closing.begin(), closing.end());
  out.text_of = byte_of;
  return out;
}

// After how many tokens the budget was spent; -1: never.
int due_after(const ReasoningBudget& given, const std::string& text) {
  ReasoningWatch watch(given);
  for (size_t i = 0; i <= text.size(); ++i) {
    if (watch.due()) {
      return static_cast<int>(i);
    }
    if (i < text.size()) {
      watch.take(text[i]);
    }
  }
  return -1;
}

TEST(ReasoningWatch, CountsWhatIsBetweenTheMarks) {
  EXPECT_EQ(due_after(budget(3, true), "abcdef"), 3);
  EXPECT_EQ(due_after(budget(0, true), "abcdef"), 0);
  EXPECT_EQ(due_after(budget(3, false), "<t>abcdef"), 6);
  EXPECT_EQ(due_after(budget(3, false), " \n<t>abcdef"), 8);
  EXPECT_EQ(due_after(budget(0, false), "<t>abc"), 3);
  // It ended by itself, or never began.
  EXPECT_EQ(due_after(budget(6, true), "a</t>bcdef"), -1);
  EXPECT_EQ(due_after(budget(1, false), "abc<t>def"), -1);
  EXPECT_EQ(due_after(budget(1, false), "<ta"), -1);
  EXPECT_EQ(due_after(budget(99, true), "abc"), -1);
}

TEST(ReasoningWatch, OnceClosedItIsOver) {
  ReasoningWatch watch(budget(1, true));
  watch.take('a');
  ASSERT_TRUE(watch.due());
  watch.close();
  EXPECT_TRUE(watch.over());
  watch.take('b');
  EXPECT_FALSE(watch.due());
}

class BudgetInEngine : public testing::TestWithParam<int> {
 protected:
  std::unique_ptr<Engine> make() const {
    EngineOptions options;
    options.draft_tokens = GetParam();
    options.draft_always = GetParam() > 0;
    return std::make_unique<Engine>(
        [log = log_] { return std::make_unique<FakeModel>(kVocab, log); }, options);
  }
  static TokenStream submit(Engine& engine, std::optional<ReasoningBudget> budget, int tokens) {
    SamplingParams params;
    params.temperature = 0;
    params.max_tokens = tokens;
    RequestOptions how;
    how.reasoning = std::move(budget);
    return engine.submit({'a'}, params, how);
  }
  static std::string read(TokenStream& stream) {
    std::string text;
    while (const auto token = stream.next()) {
      text += byte_of(token->id);
    }
    return text;
  }

  std::shared_ptr<FakeModelLog> log_ = std::make_shared<FakeModelLog>();
};

// The model goes on from what was put there: after '>' it counts '?', '@'.
TEST_P(BudgetInEngine, TheEndIsPutThere) {
  const auto engine = make();
  for (int tokens = 0; tokens < 8; ++tokens) {
    TokenStream stream = submit(*engine, budget(tokens, true), 14);
    const std::string want = std::string("bcdefghij").substr(0, static_cast<size_t>(tokens)) +
                             "</t>" + std::string("?@ABCDEFGHIJK");
    EXPECT_EQ(read(stream), want.substr(0, 14)) << tokens;
    EXPECT_EQ(stream.stats().generated_tokens, 14);
  }
  // One token is enough.
  TokenStream one = submit(*engine, budget(2, true, "1"), 6);
  EXPECT_EQ(read(one), "bc1234");
}

TEST_P(BudgetInEngine, TheLimitOfTheAnswerCountsToo) {
  const auto engine = make();
  for (int limit = 1; limit < 9; ++limit) {
    TokenStream stream = submit(*engine, budget(3, true), limit);
    EXPECT_EQ(read(stream), std::string("bcd</t>?@").substr(0, static_cast<size_t>(limit)));
    EXPECT_EQ(stream.finish_reason(), FinishReason::length);
  }
}

TEST_P(BudgetInEngine, ManyAtOnceEachItsOwn) {
  const auto engine = make();
  std::vector<TokenStream> streams;
  for (int i = 0; i < 40; ++i) {
    streams.push_back(
        submit(*engine, i % 4 == 3 ? std::nullopt : std::optional(budget(i % 10, true)), 20));
  }
  for (int i = 0; i < 40; ++i) {
    const std::string thought = std::string("bcdefghijklmnopqrstu");
    const std::string want =
        i % 4 == 3 ? thought
                   : thought.substr(0, static_cast<size_t>(i % 10)) + "</t>?@ABCDEFGHIJKLMNOP";
    EXPECT_EQ(read(streams[static_cast<size_t>(i)]), want.substr(0, 20)) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Drafts, BudgetInEngine, testing::Values(0, 4));

}  // namespace

}  // namespace quince::test
