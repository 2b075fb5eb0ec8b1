#include "constraint/constraint.h"

#include <atomic>
#include <ctime>
#include <random>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "cli/tiny_tokenizer.h"
#include "constraint/constraint_state.h"
#include "constraint/walk.h"
#include "tokenizer/small_tokenizers.h"

namespace quince {
namespace {

constexpr int kVocab = 260;  // two more than the tokenizer has
constexpr Token kEnd = 257;

std::vector<Token> bytes_of(std::string_view text) {
  return {
      reinterpret_cast<const unsigned char*>(text.data()),
      reinterpret_cast<const unsigned char*>(text.data()) + text.size()};
}

std::string text_of(const std::vector<Token>& tokens) {
  return {tokens.begin(), tokens.end()};
}

class ConstraintTest : public testing::Test {
 protected:
  bool takes(ConstraintKind kind, const std::string& grammar, std::string_view text) {
    return test::takes(*compiler_.compile({kind, grammar}), text);
  }
  std::string refusal(ConstraintKind kind, const std::string& grammar) {
    try {
      compiler_.compile({kind, grammar});
    } catch (const UserError& e) {
      return e.what();
    }
    ADD_FAILURE() << "taken: " << grammar;
    return "";
  }

  const Tokenizer tokenizer_ = test::tiny_tokenizer();
  ConstraintCompiler compiler_{tokenizer_, kVocab};
};

TEST_F(ConstraintTest, KindsSayWhatFits) {
  EXPECT_TRUE(takes(ConstraintKind::json_object, "", R"({"a": [1, {}], "b": null})"));
  EXPECT_FALSE(takes(ConstraintKind::json_object, "", "[]"));
  EXPECT_TRUE(takes(ConstraintKind::regex, "[a-c]+(x|yz)?", "abcyz"));
  EXPECT_FALSE(takes(ConstraintKind::regex, "[a-c]+(x|yz)?", "abcy"));
  EXPECT_FALSE(takes(ConstraintKind::regex, "[a-c]+(x|yz)?", "d"));
  EXPECT_TRUE(takes(ConstraintKind::choice, R"(["yes", "no", "yes, indeed"])", "yes"));
  EXPECT_TRUE(takes(ConstraintKind::choice, R"(["yes", "no", "yes, indeed"])", "yes, indeed"));
  EXPECT_FALSE(takes(ConstraintKind::choice, R"(["yes", "no"])", "maybe"));
  EXPECT_TRUE(takes(ConstraintKind::lark, "start: a+\na: \"(\" a* \")\"\n", "(()())()"));
  EXPECT_FALSE(takes(ConstraintKind::lark, "start: a+\na: \"(\" a* \")\"\n", "(()"));
  EXPECT_TRUE(takes(ConstraintKind::gbnf, "root ::= \"(\" root* \")\"", "(()(()))"));
  EXPECT_FALSE(takes(ConstraintKind::gbnf, "root ::= \"(\" root* \")\"", "())"));
}

// Every one of many names may come next: as many as are taken work, and more are refused at once.
TEST_F(ConstraintTest, ManyOptionalNames) {
  const auto schema = [](int count) {
    std::string names;
    for (int i = 0; i < count; ++i) {
      names += fmt::format(R"({}"name_{}":{{"type":"integer"}})", i == 0 ? "" : ",", i);
    }
    return R"({"type":"object","properties":{)" + names + "}}";
  };
  const std::string most = schema(1000);
  EXPECT_TRUE(takes(ConstraintKind::json_schema, most, "{}"));
  EXPECT_TRUE(takes(
      ConstraintKind::json_schema,
      most,
      R"({"name_0": 1, "name_7": 2, "name_999": 3, "other": 1})"));
  EXPECT_FALSE(takes(ConstraintKind::json_schema, most, R"({"name_7": "x"})"));
  EXPECT_EQ(
      refusal(ConstraintKind::json_schema, schema(1001)),
      "JSON schema: /properties: 1001 names that are not in \"required\", at most 1000 are taken");
}

TEST_F(ConstraintTest, RefusalsNameTheKindAndTheReason) {
  EXPECT_EQ(
      refusal(ConstraintKind::json_schema, R"({"properties":{"a":{"not":{}}}})"),
      "JSON schema: /properties/a: unsupported keyword \"not\"");
  EXPECT_EQ(refusal(ConstraintKind::regex, "a("), "regular expression: unclosed group");
  EXPECT_EQ(refusal(ConstraintKind::choice, "[]"), "choices: there is nothing to choose from");
  EXPECT_EQ(
      refusal(ConstraintKind::gbnf, "root ::= other"),
      "GBNF grammar: rule \"other\" is used and not defined");
  EXPECT_EQ(
      refusal(ConstraintKind::lark, "start: a\na: \"x\" a\n"),
      "Lark grammar: no text fits it, or a part of it leads into texts that never end");
}

TEST_F(ConstraintTest, WhiteSpaceInGrammarsIsThatOfSchemas) {
  const std::string lark = R"(start: "[" %json {"type":"object"} "]")";
  EXPECT_TRUE(takes(ConstraintKind::lark, lark, "[{\"a\": 1,\n  \"b\":2}]"));
  EXPECT_FALSE(takes(ConstraintKind::lark, lark, "[{\t\"a\": 1}]"));
  EXPECT_FALSE(takes(ConstraintKind::lark, lark, "[{   \"a\": 1}]"));
}

// The mask is right when it allows exactly what can be consumed.
TEST_F(ConstraintTest, MasksAllowWhatCanBeConsumed) {
  const Tokenizer merged = test::ByteLevel().make();
  const int vocab = merged.vocab_size() + 3;
  ConstraintCompiler compiler(merged, vocab);
  TokenBits bits((static_cast<size_t>(vocab) + 31) / 32);
  int allowed = 0;
  for (const ConstraintSpec& spec : std::vector<ConstraintSpec>{
           {ConstraintKind::json_schema, R"({"enum":["hello","hell","world"]})"},
           {ConstraintKind::regex, "(hel|hello| wor)*d"},
           {ConstraintKind::json_object, ""}}) {
    const auto constraint = compiler.compile(spec);
    test::Walker walker(merged, vocab, 3);
    ConstraintMatcher matcher = constraint->begin();
    for (const Token taken : walker.walk(constraint->begin(), 10)) {
      const ConstraintMatcher::Place place = matcher.mask(bits);
      for (Token token = 0; token < vocab && !place.complete; ++token) {
        bool fits = true;
        try {
          matcher.clone().consume(std::vector<Token>{token});
        } catch (const std::runtime_error&) {
          fits = false;
        }
        // A mask is narrower where one way on is left: it asks for the tokenizer's own spelling.
        if (!fits || matcher.clone().forced().empty()) {
          EXPECT_EQ(test::allows(bits, token), fits) << spec.text << " token " << token;
        }
        allowed += test::allows(bits, token) ? 1 : 0;
      }
      matcher.consume(std::vector<Token>{taken});
    }
  }
  EXPECT_GT(allowed, 100);
}

TEST_F(ConstraintTest, SpecialAndUnknownTokensAreNeverAllowed) {
  ConstraintMatcher matcher = compiler_.compile({ConstraintKind::regex, "(?s:.*)"})->begin();
  TokenBits bits((kVocab + 31) / 32);
  EXPECT_TRUE(matcher.mask(bits).accepting);
  for (Token token = 256; token < 288; ++token) {
    EXPECT_FALSE(test::allows(bits, token)) << token;
  }
  EXPECT_TRUE(test::allows(bits, 'a'));
}

TEST_F(ConstraintTest, RollbackAndClonesAreExact) {
  const auto constraint = compiler_.compile({ConstraintKind::choice, R"(["abcd", "abxy"])"});
  ConstraintMatcher matcher = constraint->begin();
  EXPECT_EQ(text_of(matcher.forced()), "ab");
  matcher.consume(bytes_of("abc"));
  ConstraintMatcher copy = matcher.clone();
  EXPECT_TRUE(copy.consume(bytes_of("d")).complete);
  matcher.rollback(1);
  matcher.consume(bytes_of("xy"));
  copy.rollback(4);
  EXPECT_EQ(text_of(copy.forced()), "ab");
  EXPECT_THROW(copy.rollback(9), std::runtime_error);
}

TEST_F(ConstraintTest, ForcedTokensAreSpelledAsTheTokenizerWould) {
  const Tokenizer merged = test::ByteLevel().make();
  ConstraintCompiler compiler(merged, merged.vocab_size());
  const auto constraint = compiler.compile({ConstraintKind::choice, R"(["x", "hello world!"])"});
  ConstraintMatcher matcher = constraint->begin();
  const std::vector<Token> whole = merged.encode("hello world!");
  EXPECT_EQ(matcher.forced(), std::vector<Token>());
  matcher.consume(std::vector<Token>{whole.front()});
  EXPECT_EQ(matcher.forced(), std::vector<Token>(whole.begin() + 1, whole.end()));

  const Tokenizer marked(test::sentence_piece_json(), "marks");
  ConstraintCompiler other(marked, marked.vocab_size());
  ConstraintMatcher fox = other.compile({ConstraintKind::choice, R"(["The fox"])"})->begin();
  std::string text;
  StreamDecoder decoder(marked);
  for (const Token token : fox.forced()) {
    text += decoder.add(token);
  }
  EXPECT_EQ(text, "The fox");
}

TEST_F(ConstraintTest, CompiledOnesAreKept) {
  const ConstraintSpec spec{ConstraintKind::regex, "a+"};
  const auto first = compiler_.compile(spec);
  EXPECT_EQ(compiler_.compile(spec), first);
  EXPECT_NE(compiler_.compile({ConstraintKind::choice, R"(["a+"])"}), first);
  compiler_.forget(first.get());
  EXPECT_NE(compiler_.compile(spec), first);
  for (int i = 0; i < 100; ++i) {
    compiler_.compile({ConstraintKind::regex, "b{" + std::to_string(i + 1) + "}"});
  }
  EXPECT_TRUE(takes(ConstraintKind::regex, "b{1}", "b"));
}

TEST_F(ConstraintTest, ManyThreadsShareOne) {
  const auto constraint = compiler_.compile({ConstraintKind::json_object, ""});
  std::atomic<int> done = 0;
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      test::Walker walker(tokenizer_, kVocab, i);
      for (int n = 0; n < 10; ++n) {
        const std::string text = walker.decode(walker.walk(constraint->begin(), 20));
        done += text.starts_with("{") && text.ends_with("}") ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(done, 40);
}

// ---- beside the model

class ConstraintStateTest : public ConstraintTest {
 protected:
  std::shared_ptr<ConstraintState> start(
      ConstraintKind kind, const std::string& text, ConstraintState::Options options = {}) {
    return ConstraintState::start(compiler_.compile({kind, text}), workers_, std::move(options));
  }

  ConstraintWorkers workers_;
};

TEST_F(ConstraintStateTest, DecidesWhatIsForcedAndEnds) {
  auto state = start(ConstraintKind::choice, R"(["abcd", "abxyz"])");
  EXPECT_EQ(state->next(0).token, Token{'a'});
  EXPECT_EQ(state->next(1).token, Token{'b'});
  const ConstraintState::Next choice = state->next(2);
  ASSERT_NE(choice.bits, nullptr);
  EXPECT_EQ(text_of(test::allowed_tokens(*choice.bits)), "cx");
  EXPECT_EQ(text_of(state->decided(0)), "ab");
  EXPECT_FALSE(state->ended(2));
  state->accept(2, 'x');
  EXPECT_TRUE(state->next(5).ended);
  EXPECT_EQ(text_of(state->decided(1)), "bxyz");
  EXPECT_TRUE(state->ended(5));
  EXPECT_FALSE(state->ended(4));
}

TEST_F(ConstraintStateTest, WithoutJumpsEveryTokenIsChosen) {
  auto state = start(ConstraintKind::choice, R"(["abcd"])", {.jump = false});
  for (int i = 0; i < 4; ++i) {
    const ConstraintState::Next next = state->next(i);
    ASSERT_NE(next.bits, nullptr);
    EXPECT_EQ(test::allowed_tokens(*next.bits), std::vector<Token>{'a' + i});
    EXPECT_TRUE(state->decided(i).empty());
    state->accept(i, 'a' + i);
    state->accept(i, 'z');  // too late
  }
  EXPECT_TRUE(state->next(4).ended);
}

TEST_F(ConstraintStateTest, StopTokensAreAllowedWhereTheAnswerMayEnd) {
  auto state = start(ConstraintKind::regex, "a+b?", {.stop_tokens = {kEnd, 'a'}});
  // 'a' is a stop token too: it cannot be part of the answer, and nothing else can begin it.
  EXPECT_THROW(state->next(0), UserError);
  state = start(ConstraintKind::regex, "a+b?", {.stop_tokens = {kEnd, 9999, -1}});
  EXPECT_EQ(state->next(0).token, Token{'a'});
  const ConstraintState::Next next = state->next(1);
  EXPECT_EQ(test::allowed_tokens(*next.bits), (std::vector<Token>{'a', 'b', kEnd}));
  state->accept(1, kEnd);
  EXPECT_TRUE(state->next(2).ended);
  EXPECT_TRUE(state->ended(1));
}

// An answer that takes more and more work to follow holds up the others of its batch.
TEST_F(ConstraintStateTest, TooMuchWorkForSeveralTokensInARowIsAnError) {
  const auto run = [&](const std::vector<double>& costs) {
    auto calls = std::make_shared<size_t>(0);  // two for each position: before and behind
    ConstraintState::Options options;
    options.clock = [=] {
      const size_t call = (*calls)++;
      return call % 2 == 0 ? 0.0 : costs.at(call / 2);
    };
    const auto state = start(ConstraintKind::regex, "[ab]*", options);
    for (size_t i = 0; i + 1 < costs.size(); ++i) {
      state->next(static_cast<int64_t>(i));
      state->accept(static_cast<int64_t>(i), 'a');
    }
    state->next(static_cast<int64_t>(costs.size()) - 1);
  };
  run({0.5, 0.5, 0.01, 0.5, 0.5, 0.05, 0.5});
  EXPECT_THAT(
      [&] { run({0.01, 0.5, 0.5, 0.5}); },
      testing::ThrowsMessage<UserError>(testing::HasSubstr("in many ways")));
}

TEST_F(ConstraintStateTest, AmbiguousGrammarsEndWithAnError) {
  ConstraintState::Options options;
  options.clock = [] {  // as if it were a slower machine, or a longer answer
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return 20.0 * (static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec));
  };
  const auto state =
      start(ConstraintKind::gbnf, "root ::= s\ns ::= s s | \"a\" | \"b\" | \"\"\n", options);
  std::string message;
  for (int i = 0; i < 4000 && message.empty(); ++i) {
    try {
      state->next(i);
      state->accept(i, 'a');
    } catch (const UserError& e) {
      message = e.what();
    }
  }
  EXPECT_THAT(message, testing::HasSubstr("in many ways"));
}

TEST_F(ConstraintStateTest, WhatFailsIsSaidAndForgotten) {
  std::atomic<int> failed = 0;
  auto state = start(ConstraintKind::regex, "a+b?", {.failed = [&] { ++failed; }});
  EXPECT_EQ(state->next(0).token, Token{'a'});
  EXPECT_NE(state->next(1).bits, nullptr);
  state->accept(1, 'x');  // the sampler never would
  try {
    state->next(2);
    FAIL() << "went on";
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("does not fit"), std::string::npos) << e.what();
  }
  while (failed == 0) {
    std::this_thread::yield();
  }
  EXPECT_EQ(failed, 1);
}

}  // namespace
}  // namespace quince
