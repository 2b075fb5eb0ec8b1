// Values at the edge of what requests may ask for: numbers, biases, counts, prompts that just fit.
#include <chrono>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "server/served.h"

namespace quince::test {

namespace {

namespace json = boost::json;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kCompletions = "/v1/completions";
constexpr const char* kReplacement = "\xef\xbf\xbd";

// A good body of either route, with these fields besides.
std::string body(const std::string& route, const std::string& fields = "") {
  return (route == kChat ? R"({"messages":[{"role":"user","content":"hi"}])" : R"({"prompt":"")") +
         (fields.empty() ? "" : "," + fields) + "}";
}

class SamplingLimits : public ServedTest<Script::script> {
 protected:
  static Answer chat(const std::string& fields = "") {
    return served().post(kChat, body(kChat, fields));
  }
  // A text as the route writes it: completions keep the space that the first token begins with.
  static std::string trimmed(const Answer& answer) {
    const std::string text = text_of(answer);
    return text.starts_with(" ") ? text.substr(1) : text;
  }
  static void expect_alive() {
    EXPECT_EQ(served().get("/health").status, 200);
    EXPECT_EQ(text_of(chat()), kScriptText);
  }
};

// SMP-01, all of it: each wrong value is refused and hurts nobody.
TEST_F(SamplingLimits, NumbersAtTheExtremes) {
  for (const std::string route : {kChat, kCompletions}) {
    for (const char* greedy : {"0", "1e-5", "1e-30"}) {
      const Answer answer =
          served().post(route, body(route, fmt::format(R"("temperature":{})", greedy)));
      ASSERT_EQ(answer.status, 200) << greedy << answer.body;
      EXPECT_EQ(trimmed(answer), kScriptText) << greedy;
    }
    for (const char* good : {"2", "null"}) {
      EXPECT_EQ(
          served().post(route, body(route, fmt::format(R"("temperature":{})", good))).status, 200);
    }
    for (const char* field :
         {"temperature",
          "top_p",
          "min_p",
          "repetition_penalty",
          "presence_penalty",
          "frequency_penalty"}) {
      const bool signed_penalty =
          std::set<std::string>{"presence_penalty", "frequency_penalty"}.contains(field);
      for (const std::string value : {"1e400", "-1e400", "-1", "\"0.7\"", "[]", "true"}) {
        if (value == "-1" && signed_penalty) {
          continue;  // so in OpenAI's API
        }
        for (const char* stream : {"", R"(,"stream":true)"}) {
          const Answer answer =
              served().post(route, body(route, fmt::format(R"("{}":{}{})", field, value, stream)));
          ASSERT_EQ(answer.status, 400) << field << value << answer.body;
          EXPECT_EQ(answer.json().at("error").at("param"), json::value(field)) << value;
          EXPECT_THAT(answer.body, HasSubstr(field)) << value;
        }
      }
      // These are no JSON at all.
      for (const char* value : {"NaN", "Infinity", "-Infinity"}) {
        const Answer answer =
            served().post(route, body(route, fmt::format(R"("{}":{})", field, value)));
        ASSERT_EQ(answer.status, 400) << field << value;
        EXPECT_THAT(answer.body, HasSubstr("not JSON"));
      }
      EXPECT_EQ(text_of(chat()), kScriptText) << field;
    }
  }
  expect_alive();
}

// SMP-03 with as many entries as OpenAI's clients send at most, and more; and streamed.
TEST_F(SamplingLimits, BiasesOfAnyNumberAndKind) {
  std::string many;
  std::string pairs;
  for (int i = 0; i < 5000; ++i) {
    many += fmt::format("{}\"{}\":0.5", i == 0 ? "" : ",", i % kScriptVocabulary);
    pairs += fmt::format("{}[{},0.5]", i == 0 ? "" : ",", i % kScriptVocabulary);
  }
  for (const std::string& bias : {"{" + many + "}", "[" + pairs + "]"}) {
    const Answer answer = chat(R"("logit_bias":)" + bias);
    EXPECT_EQ(answer.status, 200) << answer.body;
  }
  for (const char* wrong :
       {R"({"191222":-100})",
        R"({"-1":5})",
        R"({"abc":1})",
        R"({"259":"x"})",
        R"({"259":1e308})",
        R"({"384":1})"}) {
    for (const std::string route : {kChat, kCompletions}) {
      for (const char* stream : {"", R"(,"stream":true)"}) {
        const Answer answer =
            served().post(route, body(route, std::string(R"("logit_bias":)") + wrong + stream));
        EXPECT_EQ(answer.status, 400) << wrong << answer.body;
        EXPECT_EQ(answer.json().at("error").at("param"), "logit_bias") << wrong;
      }
    }
  }
  for (const char* none : {"{}", "null"}) {
    EXPECT_EQ(text_of(chat(std::string(R"("logit_bias":)") + none)), kScriptText);
  }
  const Streamed forced =
      streamed(chat(R"("stream":true,"logit_bias":{"266":100},"max_tokens":4)"));
  EXPECT_EQ(forced.texts.at(0), "AAAA");
  // A row of the head that no token has is as good an end as any other.
  EXPECT_EQ(text_of(chat(R"("logit_bias":{"300":100},"max_tokens":4)")), "");
  expect_alive();
}

// SMP-06, STOP-03: limits are exact on both routes, and both agree with their streams.
TEST_F(SamplingLimits, CountsOfAnswersAndTokens) {
  for (const char* bad : {"0", "-1", "100000", "1.5"}) {
    for (const char* stream : {"", R"(,"stream":true)"}) {
      const auto begin = std::chrono::steady_clock::now();
      const Answer answer = chat(fmt::format(R"("n":{}{})", bad, stream));
      EXPECT_EQ(answer.status, 400) << bad;
      EXPECT_EQ(answer.json().at("error").at("param"), "n") << bad;
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1)) << bad;
    }
  }
  const std::vector<std::tuple<std::string, std::string, std::string, int64_t>> cases = {
      {R"("max_tokens":200)", kScriptText, "stop", 11},
      {R"("max_tokens":12)", kScriptText, "stop", 11},
      {R"("max_tokens":11)", kScriptText, "length", 11},
      {R"("max_tokens":3)", "The quick br", "length", 3},
      {R"("max_tokens":2)", "The quick", "length", 2},
      {R"("max_tokens":1)", "The", "length", 1},
      {R"("max_tokens":0)", "", "length", 0},
      {R"("max_tokens":-1)", kScriptText, "stop", 11},
      {R"("max_tokens":1000000000000000000)", kScriptText, "stop", 11},
      {R"("max_completion_tokens":1)", "The", "length", 1}};
  for (const std::string route : {kChat, kCompletions}) {
    for (const auto& [limit, text, reason, tokens] : cases) {
      if (route == kCompletions && limit.find("completion") != std::string::npos) {
        continue;  // chat's alone
      }
      const Answer whole = served().post(route, body(route, limit));
      ASSERT_EQ(whole.status, 200) << whole.body;
      EXPECT_EQ(trimmed(whole), text) << route << limit;
      EXPECT_EQ(whole.json().at("choices").at(0).at("finish_reason"), reason.c_str()) << limit;
      EXPECT_EQ(whole.json().at("usage").at("completion_tokens"), tokens) << limit;
      const Streamed stream = streamed(served().post(
          route, body(route, limit + R"(,"stream":true,"stream_options":{"include_usage":true})")));
      EXPECT_EQ(stream.texts.contains(0) ? stream.texts.at(0) : std::string(), text_of(whole))
          << route << limit;
      EXPECT_EQ(stream.finish.at(0), std::vector<std::string>{reason}) << limit;
      ASSERT_GE(stream.chunks.size(), 2u);
      EXPECT_TRUE(stream.done);
      // The reason, then the usage, then [DONE].
      EXPECT_EQ(stream.chunks.back().at("usage").at("completion_tokens"), tokens);
      const json::value& last = stream.chunks[stream.chunks.size() - 2];
      EXPECT_EQ(last.at("choices").at(0).at("finish_reason"), reason.c_str()) << limit;
    }
  }
}

// STR-03 on both routes.
TEST_F(SamplingLimits, UsageOfStreamsIsThatOfWholeAnswers) {
  for (const std::string route : {kChat, kCompletions}) {
    for (const char* more : {"", R"(,"n":2)", R"(,"max_tokens":2)", R"(,"stop":"fox")"}) {
      const Answer whole = served().post(
          route, body(route, std::string(R"("stream_options":{"include_usage":true})") + more));
      ASSERT_EQ(whole.status, 200) << whole.body;  // without a stream it means nothing
      const json::value usage = whole.json().at("usage");
      EXPECT_EQ(usage.at("prompt_tokens"), 1);
      EXPECT_EQ(usage.at("total_tokens").as_int64(), usage.at("completion_tokens").as_int64() + 1);
      const Streamed asked = streamed(served().post(
          route,
          body(
              route,
              std::string(R"("stream":true,"stream_options":{"include_usage":true})") + more)));
      size_t told = 0;
      for (const json::value& chunk : asked.chunks) {
        const bool empty = chunk.at("choices").as_array().empty();
        told += empty ? 1 : 0;
        EXPECT_EQ(chunk.at("usage").is_null(), !empty);
      }
      EXPECT_EQ(told, 1u) << route << more;
      const json::value& last = asked.chunks.back();
      for (const char* count : {"prompt_tokens", "completion_tokens", "total_tokens"}) {
        EXPECT_EQ(last.at("usage").at(count), usage.at(count)) << route << more << count;
      }
      for (const char* options :
           {"",
            R"(,"stream_options":{"include_usage":false})",
            R"(,"stream_options":null)",
            R"(,"stream_options":{"include_usage":null})"}) {
        const Answer silent =
            served().post(route, body(route, std::string(R"("stream":true)") + options + more));
        EXPECT_EQ(silent.status, 200);
        EXPECT_THAT(silent.body, Not(HasSubstr("usage"))) << route << options << more;
      }
    }
  }
}

// TOK-03: tokens that are parts of a character, each with its log probability.
TEST_F(SamplingLimits, TokensOfHalfACharacterHaveNames) {
  const auto expect_whole = [](const Answer& answer) {
    EXPECT_EQ(answer.status, 200);
    EXPECT_THAT(answer.body, Not(HasSubstr(kReplacement)));
    EXPECT_THAT(answer.body, HasSubstr(R"("\\xf0")"));
  };
  for (const char* limit : {"", R"(,"max_tokens":9)"}) {
    const std::string fields = std::string(R"("logprobs":true)") + limit;
    const Answer whole = chat(fields);
    const Answer stream = chat(R"("stream":true,)" + fields);
    expect_whole(whole);
    expect_whole(stream);
    EXPECT_EQ(streamed(stream).texts.at(0), text_of(whole));
  }
  const Answer broken = chat(R"("logprobs":true,"max_tokens":8,"logit_bias":{"243":100})");
  EXPECT_EQ(broken.json().at("choices").at(0).at("finish_reason"), "length");
  // Each has its own place among the likeliest, and together they are one character of the text.
  const json::value likely = served()
                                 .post(kCompletions, body(kCompletions, R"("logprobs":259)"))
                                 .json()
                                 .at("choices")
                                 .at(0)
                                 .at("logprobs");
  EXPECT_GE(likely.at("top_logprobs").at(0).as_object().size(), 255u) << "256 bytes and more";
  const json::value whole = served()
                                .post(kCompletions, body(kCompletions, R"("logprobs":0)"))
                                .json()
                                .at("choices")
                                .at(0)
                                .at("logprobs");
  EXPECT_EQ(whole.at("tokens").at(7), "\\xf0");
  const json::array& offsets = whole.at("text_offset").as_array();
  ASSERT_EQ(offsets.size(), 11u);
  EXPECT_EQ(offsets[7].as_int64() + 1, offsets[10].as_int64()) << "three that add no character";
  expect_alive();
}

class PromptLimits : public ServedTest<Script::majority> {
 protected:
  static std::string ask(size_t letters, const std::string& fields = "") {
    return R"({"messages":[{"role":"user","content":")" + std::string(letters, 'A') + R"("}])" +
           fields + "}";
  }
};

// CTX-01, all of it: the context holds 512 tokens, one of them before the text.
TEST_F(PromptLimits, OfThePromptAndOfNothing) {
  for (const char* stream : {"", R"(,"stream":true)"}) {
    for (const size_t letters : {511, 600}) {
      const Answer answer = served().post(kChat, ask(letters, stream));
      ASSERT_EQ(answer.status, 400) << letters << answer.body;
      EXPECT_EQ(answer.headers.at("content-type"), "application/json");
      EXPECT_EQ(answer.json().at("error").at("code"), "context_length_exceeded");
      EXPECT_THAT(answer.body, HasSubstr(std::to_string(letters + 1)));
      EXPECT_THAT(answer.body, HasSubstr("512"));
    }
    for (const size_t letters : {509, 510}) {
      const Answer answer = served().post(
          kChat,
          ask(letters,
              *stream == '\0' ? "" : R"(,"stream":true,"stream_options":{"include_usage":true})"));
      ASSERT_EQ(answer.status, 200) << letters << answer.body;
      const json::value end = *stream == '\0' ? answer.json() : streamed(answer).chunks.back();
      EXPECT_EQ(end.at("usage").at("total_tokens"), 512) << letters;
      EXPECT_EQ(end.at("usage").at("prompt_tokens"), static_cast<int64_t>(letters + 1));
    }
  }
  for (const char* prompt : {R"("")", "[]", R"([""])", "[[]]"}) {
    for (const char* stream : {"false", "true"}) {
      const Answer answer = served().post(
          kCompletions,
          fmt::format(R"({{"prompt":{},"max_tokens":3,"stream":{}}})", prompt, stream));
      EXPECT_EQ(answer.status, 200) << prompt << answer.body;
      EXPECT_THAT(answer.body, HasSubstr("length")) << prompt;
    }
    EXPECT_EQ(
        served()
            .post("/completion", fmt::format(R"({{"prompt":{},"n_predict":3}})", prompt))
            .status,
        200)
        << prompt;
  }
  EXPECT_EQ(served().post(kChat, ask(0, R"(,"max_tokens":1)")).status, 200);
  for (const char* nobody : {R"({"messages":[]})", "{}", R"({"model":"M"})"}) {
    const Answer answer = served().post(kChat, nobody);
    EXPECT_EQ(answer.status, 400) << nobody;
    EXPECT_EQ(answer.json().at("error").at("param"), "messages") << nobody;
  }
  EXPECT_EQ(
      text_of(served().post(
          kChat, R"({"messages":[{"role":"user","content":"AAAAB"}],"max_tokens":4})")),
      "AAAA");
}

// CTX-02, but for the start between: each equals what a server that keeps nothing says.
TEST(PromptsAgain, AreAnsweredAsAtFirst) {
  EngineOptions nothing;
  nothing.kept_bytes = 0;
  Served cold(serve_script(Script::majority, "M", nothing));
  Served warm(serve_script(Script::majority, "M"));
  const auto ask = [](Served& served, const std::string& text) {
    return served.post(
        kChat, R"({"max_tokens":8,"messages":[{"role":"user","content":")" + text + R"("}]})");
  };
  std::string text = "AAB";
  while (text.size() < 299) {
    text += text.size() % 3 == 0 ? "C" : "B";
  }
  std::map<std::string, std::string> want;
  for (const std::string& each :
       {text, text, text, text.substr(0, 200), text + "A", text + "A", text}) {
    if (!want.contains(each)) {
      want[each] = text_of(ask(cold, each));
    }
    const Answer answer = ask(warm, each);
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(text_of(answer), want[each]);
    const json::value usage = answer.json().at("usage");
    EXPECT_LT(
        usage.at("prompt_tokens_details").at("cached_tokens").as_int64(),
        usage.at("prompt_tokens").as_int64());
  }
  EXPECT_EQ(ask(cold, text).json().at("usage").at("prompt_tokens_details").at("cached_tokens"), 0);
  // Two at once, of a prompt that nobody has asked yet.
  const std::string fresh = "C" + text;
  const std::string request =
      R"({"max_tokens":8,"messages":[{"role":"user","content":")" + fresh + R"("}]})";
  Client first = warm.client();
  Client second = warm.client();
  first.post(kChat, request);
  second.post(kChat, request);
  const std::string lone = text_of(ask(cold, fresh));
  EXPECT_EQ(text_of(first.read_answer()), lone);
  EXPECT_EQ(text_of(second.read_answer()), lone);
}

class LoopLimits : public ServedTest<Script::loop> {};

// SMP-06, CTX-01: no limit, and one that nobody reaches.
TEST_F(LoopLimits, WithoutALimitTheContextEndsIt) {
  for (const char* fields : {"", R"("max_tokens":1000000000000000000)", R"("max_tokens":-1)"}) {
    for (const std::string route : {kChat, kCompletions}) {
      const json::value answer = served().post(route, body(route, fields)).json();
      EXPECT_EQ(answer.at("choices").at(0).at("finish_reason"), "length") << route << fields;
      EXPECT_EQ(answer.at("usage").at("total_tokens"), 512) << route << fields;
    }
  }
}

}  // namespace

}  // namespace quince::test
