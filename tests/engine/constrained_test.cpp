// Requests under a constraint, in the engine: a fake model that counts, one token a byte.
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "base/error.h"
#include "cli/tiny_tokenizer.h"
#include "engine/engine.h"
#include "engine/fakes.h"
#include "engine/sampling/sampler.h"

namespace quince {
namespace {

constexpr int kVocab = 260;
constexpr int32_t kEnd = 257;

SamplingParams constrained(ConstraintKind kind, std::string text) {
  SamplingParams params;
  params.temperature = 0.0f;
  params.max_tokens = 200;
  params.stop_tokens = {kEnd};
  params.constraint = ConstraintSpec{kind, std::move(text)};
  return params;
}

std::string read(TokenStream& stream) {
  std::string text;
  while (const auto token = stream.next()) {
    text.push_back(static_cast<char>(token->id));
  }
  return text;
}

class Constrained : public testing::Test {
 protected:
  std::unique_ptr<Engine> make(const EngineOptions& options = {}) {
    auto engine = std::make_unique<Engine>(
        [log = log_] { return std::make_unique<FakeModel>(kVocab, log); }, options);
    engine->set_tokenizer(test::tiny_tokenizer());
    return engine;
  }
  std::string answer(Engine& engine, const SamplingParams& params, int32_t prompt = 'a') {
    TokenStream stream = engine.submit({prompt}, params);
    std::string text = read(stream);
    reason_ = stream.finish_reason();
    generated_ = stream.stats().generated_tokens;
    return text;
  }

  std::shared_ptr<FakeModelLog> log_ = std::make_shared<FakeModelLog>();
  FinishReason reason_ = FinishReason::none;
  int generated_ = 0;
};

TEST_F(Constrained, AnswersHaveTheFormAndStop) {
  auto engine = make();
  // The model wants what follows in the alphabet.
  EXPECT_EQ(answer(*engine, constrained(ConstraintKind::choice, R"(["xyz","bcd","bcx"])")), "bcd");
  EXPECT_EQ(reason_, FinishReason::stop);
  EXPECT_EQ(generated_, 3);
  EXPECT_EQ(answer(*engine, constrained(ConstraintKind::regex, "[0-9]{4}")), "0123");
  EXPECT_EQ(reason_, FinishReason::stop);
  EXPECT_EQ(
      answer(*engine, constrained(ConstraintKind::gbnf, "root ::= \"<\" [b-d]{2} \">\"")), "<bc>");
  SamplingParams schema = constrained(
      ConstraintKind::json_schema,
      R"({"type":"object","properties":{"a":{"enum":[12,"x"]}},"required":["a"],
          "additionalProperties":false})");
  EXPECT_EQ(reason_, FinishReason::stop);
  schema.temperature = 1.0f;
  schema.top_k = 0;
  schema.min_p = 0.0f;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    schema.seed = seed;
    std::string text = answer(*engine, schema);
    std::erase_if(text, [](char c) { return c == ' ' || c == '\n' || c == '\t'; });
    EXPECT_TRUE(text == R"({"a":12})" || text == R"({"a":"x"})") << text;
    EXPECT_EQ(reason_, FinishReason::stop);
  }
}

TEST_F(Constrained, TheEndTokenIsTakenOnlyWhereTheAnswerMayEnd) {
  auto engine = make();
  SamplingParams params = constrained(ConstraintKind::regex, "[x-z]{2,}");
  params.logit_bias[kEnd] = 50.0f;  // it is what the model likes best
  EXPECT_EQ(answer(*engine, params, 'w'), "xy");
  EXPECT_EQ(reason_, FinishReason::stop);
  params.logit_bias.clear();
  params.max_tokens = 5;
  EXPECT_EQ(answer(*engine, params, 'w'), "xyzxy");
  EXPECT_EQ(reason_, FinishReason::length);
}

TEST_F(Constrained, ACompleteAnswerStopsAlsoAtItsLastToken) {
  auto engine = make();
  for (const int most : {3, 4}) {
    SamplingParams params = constrained(ConstraintKind::choice, R"(["bcd"])");
    params.max_tokens = most;
    EXPECT_EQ(answer(*engine, params), "bcd");
    EXPECT_EQ(reason_, FinishReason::stop);
  }
  SamplingParams params = constrained(ConstraintKind::choice, R"(["bcd"])");
  params.max_tokens = 2;
  EXPECT_EQ(answer(*engine, params), "bc");
  EXPECT_EQ(reason_, FinishReason::length);
  params.max_tokens = 0;
  EXPECT_EQ(answer(*engine, params), "");
  EXPECT_EQ(reason_, FinishReason::length);
}

TEST_F(Constrained, WithoutStopTokensTheFormEndsTheAnswer) {
  auto engine = make();
  SamplingParams params = constrained(ConstraintKind::regex, "[b-e]{3}");
  params.stop_tokens.clear();
  EXPECT_EQ(answer(*engine, params), "bcd");
  EXPECT_EQ(reason_, FinishReason::stop);
}

TEST_F(Constrained, ForcedTokensAreComputedTogether) {
  const std::string long_text(100, 'q');
  auto engine = make();
  SamplingParams params = constrained(ConstraintKind::regex, "b" + long_text + "[r-t]|c");
  EXPECT_EQ(answer(*engine, params), "b" + long_text + "r");
  EXPECT_EQ(generated_, 102);
  EXPECT_LT(log_->steps, 50);
  EXPECT_GT(log_->largest_batch, 50);
  // One by one where each token's own probability is wanted: the same answer.
  log_->steps = 0;
  params.logprobs = true;
  TokenStream stream = engine->submit({'a'}, params);
  int tokens = 0;
  while (const auto token = stream.next()) {
    EXPECT_FALSE(std::isnan(token->logprob));
    ++tokens;
  }
  EXPECT_EQ(tokens, 102);
  EXPECT_GE(log_->steps, 102);
}

// Draws depend on the seed and the position alone, whether or not tokens were jumped over.
TEST_F(Constrained, JumpsDoNotChangeWhatIsDrawn) {
  auto engine = make();
  SamplingParams params = constrained(ConstraintKind::regex, "([a-z]{2}(long-and-forced)[0-9]){6}");
  params.temperature = 5.0f;
  params.top_k = 0;
  params.top_p = 1.0f;
  params.min_p = 0.0f;
  params.repetition_penalty = 1.3f;
  std::set<std::string> answers;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    params.seed = seed;
    params.logprobs = false;
    const std::string jumped = answer(*engine, params);
    params.logprobs = true;
    EXPECT_EQ(answer(*engine, params), jumped) << seed;
    EXPECT_EQ(jumped.size(), 6u * 18);
    answers.insert(jumped);
  }
  EXPECT_EQ(answers.size(), 8u);
}

TEST_F(Constrained, RefusedBeforeAnythingRuns) {
  auto engine = make();
  try {
    engine->submit({'a'}, constrained(ConstraintKind::json_schema, R"({"items":{"not":{}}})"));
    FAIL() << "taken";
  } catch (const UserError& e) {
    EXPECT_STREQ(e.what(), "JSON schema: /items: unsupported keyword \"not\"");
  }
  EXPECT_EQ(log_->steps, 0);
  Engine plain([] { return std::make_unique<FakeModel>(kVocab); }, {});
  EXPECT_THROW(plain.submit({'a'}, constrained(ConstraintKind::json_object, "")), UserError);
  plain.drain();  // nothing of it is left
}

TEST_F(Constrained, OthersInTheBatchAreNotTouched) {
  auto engine = make();
  std::vector<std::thread> clients;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 12; ++i) {
    clients.emplace_back([&, i] {
      for (int n = 0; n < 15; ++n) {
        const bool form = (i + n) % 2 == 0;
        SamplingParams params = constrained(
            ConstraintKind::json_schema, R"({"type":"array","items":{"const":"abc"},"minItems":3,
                "maxItems":3})");
        params.max_tokens = form ? 900 : 20;
        if (!form) {
          params.constraint.reset();
        }
        TokenStream stream = engine->submit({'a'}, params);
        if (form && n % 5 == 4) {
          stream.next();
          continue;  // cancelled
        }
        std::string text = read(stream);
        std::erase_if(text, [](char c) { return c == ' ' || c == '\n' || c == '\t'; });
        const std::string want = form ? R"(["abc","abc","abc"])" : "bcdefghijklmnopqrstu";
        wrong += text == want ? 0 : 1;
      }
    });
  }
  for (std::thread& client : clients) {
    client.join();
  }
  EXPECT_EQ(wrong, 0);
  engine->drain();
  EXPECT_EQ(engine->stats().kv_tokens, 0);
}

TEST_F(Constrained, PreemptionChangesNothing) {
  EngineOptions options;
  options.kv_tokens = 256;
  options.prefill_chunk = 16;
  auto engine = make(options);
  const std::string forced(40, 'q');
  std::vector<TokenStream> streams;
  for (int i = 0; i < 6; ++i) {
    streams.push_back(engine->submit(
        std::vector<int32_t>(20, 'a'),
        constrained(ConstraintKind::regex, "(b[c-e]" + forced + "){4}")));
  }
  const std::string turn = "bc" + forced;
  std::string turns;
  for (int i = 0; i < 4; ++i) {
    turns += turn;
  }
  for (TokenStream& stream : streams) {
    EXPECT_EQ(read(stream), turns);
  }
  EXPECT_GT(engine->stats().preemptions, 0);
}

TEST_F(Constrained, TheNextTurnGoesOnBehindAJump) {
  auto engine = make();
  std::vector<int32_t> tokens{'a'};
  for (int turn = 0; turn < 3; ++turn) {
    TokenStream stream =
        engine->submit(tokens, constrained(ConstraintKind::choice, R"(["bqqqqqqqqqqqqqqqq","c"])"));
    const std::string text = read(stream);
    EXPECT_EQ(text, "bqqqqqqqqqqqqqqqq");
    tokens.insert(tokens.end(), text.begin(), text.end());
    tokens.push_back('a');
  }
}

// As the engine does it: the token before is not read when the next step is built.
TEST_F(Constrained, BothSamplersAskWhileTheStepIsEvaluated) {
  namespace mx = mlx::core;
  ConstraintCompiler compiler(test::tiny_tokenizer(), kVocab);
  ConstraintWorkers workers;
  for (const mx::Device device : {mx::Device(mx::Device::cpu), mx::Device(mx::Device::gpu)}) {
    SamplingParams params = constrained(ConstraintKind::regex, "");
    auto state = ConstraintState::start(
        compiler.compile({ConstraintKind::regex, "[ab]{2}forced[cd]{2}"}), workers, {});
    auto sampler = make_sampler(params, {}, device);
    std::vector<float> values(kVocab, 0.0f);
    values['b'] = values['d'] = 3.0f;
    const mx::array logits(values.data(), {1, kVocab}, mx::float32);
    std::vector<mx::array> ids;
    for (const int64_t position : {0, 1, 2, 8, 9, 10}) {  // jumps over "orced"
      if (position == 8) {
        mx::eval(ids);
      }
      const std::vector<SampleRow> rows{{sampler.get(), nullptr, kNoToken, state, position}};
      ids.push_back(sample_rows(logits, rows, nullptr).ids);
      mx::async_eval(ids.back());
    }
    mx::eval(ids);
    std::string text;
    for (const mx::array& id : ids) {
      text.push_back(static_cast<char>(id.data<int32_t>()[0]));
    }
    EXPECT_EQ(text.substr(0, 5), "bbfdd");
    sampler->check(6);
    state->accept(9, 'd');
    EXPECT_TRUE(state->ended(10));
    // What the constraint cannot go on from is told by the call that met it.
    auto broken = ConstraintState::start(
        compiler.compile({ConstraintKind::regex, "[ab]c"}), workers, {.jump = false});
    auto other = make_sampler(params, {}, device);
    broken->next(0);
    broken->accept(0, 'x');
    const std::vector<SampleRow> rows{{other.get(), nullptr, kNoToken, broken, 1}};
    mx::eval(sample_rows(logits, rows, nullptr).ids);
    EXPECT_THROW(other->check(1), UserError);
  }
}

}  // namespace
}  // namespace quince
