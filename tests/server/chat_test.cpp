#include <set>

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "server/served.h"

namespace quince::test {

namespace {

namespace json = boost::json;
using testing::HasSubstr;

constexpr const char* kChat = "/v1/chat/completions";

// A body with the usual messages and these fields besides.
std::string chat(const std::string& fields = "") {
  return R"({"messages":[{"role":"user","content":"hi"}])" + (fields.empty() ? "" : "," + fields) +
         "}";
}

class ScriptChat : public ServedTest<Script::script> {};
class LoopChat : public ServedTest<Script::loop> {};
class MajorityChat : public ServedTest<Script::majority> {};

TEST_F(ScriptChat, AWholeAnswer) {
  const Answer answer = served().post(kChat, chat());
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.headers.at("content-type"), "application/json");
  const json::value body = answer.json();
  EXPECT_EQ(body.at("object"), "chat.completion");
  EXPECT_THAT(std::string(body.at("id").as_string()), testing::StartsWith("chatcmpl-"));
  EXPECT_EQ(body.at("model"), "S");
  EXPECT_TRUE(body.at("created").is_int64());
  EXPECT_TRUE(body.at("system_fingerprint").is_string());
  const json::value& choice = body.at("choices").at(0);
  EXPECT_EQ(choice.at("index"), 0);
  EXPECT_EQ(choice.at("message").at("role"), "assistant");
  EXPECT_EQ(choice.at("message").at("content"), kScriptText);
  EXPECT_EQ(choice.at("finish_reason"), "stop");
  EXPECT_TRUE(choice.at("logprobs").is_null());
  const json::value& usage = body.at("usage");
  EXPECT_EQ(usage.at("prompt_tokens"), 1);
  EXPECT_EQ(usage.at("completion_tokens"), 11);
  EXPECT_EQ(usage.at("total_tokens"), 12);
  EXPECT_EQ(usage.at("prompt_tokens_details").at("cached_tokens"), 0);
  EXPECT_EQ(body.at("timings").at("predicted_n"), 11);
}

TEST_F(ScriptChat, AStream) {
  const Answer answer = served().post(kChat, chat(R"("stream":true)"));
  ASSERT_EQ(answer.status, 200);
  EXPECT_THAT(answer.headers.at("content-type"), testing::StartsWith("text/event-stream"));
  const Streamed stream = streamed(answer);
  EXPECT_TRUE(stream.done);
  EXPECT_EQ(stream.texts.at(0), kScriptText);
  EXPECT_EQ(stream.finish.at(0), std::vector<std::string>{"stop"});
  std::set<std::string> ids;
  for (size_t i = 0; i < stream.chunks.size(); ++i) {
    const json::value& chunk = stream.chunks[i];
    EXPECT_EQ(chunk.at("object"), "chat.completion.chunk");
    EXPECT_FALSE(chunk.as_object().contains("usage"));
    ids.emplace(chunk.at("id").as_string());
    const json::value& choice = chunk.at("choices").at(0);
    const json::object& delta = choice.at("delta").as_object();
    EXPECT_EQ(delta.contains("role"), i == 0) << i;
    if (i == 0) {
      EXPECT_EQ(delta.at("role"), "assistant");
      EXPECT_EQ(delta.at("content"), "");
    }
    // The reason comes alone, last.
    EXPECT_EQ(choice.at("finish_reason").is_null(), i + 1 < stream.chunks.size());
    EXPECT_EQ(delta.empty(), i + 1 == stream.chunks.size());
  }
  EXPECT_EQ(ids.size(), 1u);
  EXPECT_THAT(answer.body, testing::EndsWith("data: [DONE]\n\n"));
}

// STR-03.
TEST_F(ScriptChat, UsageInStreamsOnlyWhenAsked) {
  for (const char* options :
       {R"("stream_options":{"include_usage":true})",
        R"("stream_options":{"include_usage":true},"n":2)",
        R"("stream_options":{"include_usage":true},"max_tokens":2)",
        R"("stream_options":{"include_usage":true},"stop":"fox")"}) {
    const auto whole = served().post(kChat, chat(std::string(options)));
    const Streamed stream =
        streamed(served().post(kChat, chat(R"("stream":true,)" + std::string(options))));
    ASSERT_FALSE(stream.chunks.empty());
    for (size_t i = 0; i + 1 < stream.chunks.size(); ++i) {
      EXPECT_TRUE(stream.chunks[i].at("usage").is_null());
    }
    const json::value& last = stream.chunks.back();
    EXPECT_TRUE(last.at("choices").as_array().empty());
    EXPECT_EQ(last.at("object"), "chat.completion.chunk");
    EXPECT_EQ(
        last.at("usage").at("completion_tokens"), whole.json().at("usage").at("completion_tokens"))
        << options;
    EXPECT_EQ(last.at("usage").at("prompt_tokens"), 1);
  }
  for (const char* options :
       {R"("stream_options":{"include_usage":false})",
        R"("stream_options":{})",
        R"("stream_options":null)",
        R"("stream_options":{"include_usage":null})"}) {
    const Answer answer = served().post(kChat, chat(R"("stream":true,)" + std::string(options)));
    EXPECT_THAT(answer.body, testing::Not(HasSubstr("usage"))) << options;
  }
}

// STOP-01.
TEST_F(ScriptChat, StopTexts) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"(["own fo"])", "The quick br"},
      {R"(["n f","zzz"])", "The quick brow"},
      {R"("brown")", "The quick "},
      {R"(["jumps over"])", "The quick brown fox "},
      {R"(["x","q","b","zz"])", "The "},
      {R"(["x","q","b","zz","j"])", "The "},
      {R"([""])", kScriptText},
      {"null", kScriptText},
      {R"(["\ud83d\udc69"])", "The quick brown fox jumps over"}};
  for (const auto& [stop, text] : cases) {
    const Answer whole = served().post(kChat, chat(R"("stop":)" + stop));
    ASSERT_EQ(whole.status, 200) << whole.body;
    EXPECT_EQ(text_of(whole), text) << stop;
    EXPECT_EQ(whole.json().at("choices").at(0).at("finish_reason"), "stop");
    const Streamed stream = streamed(served().post(kChat, chat(R"("stream":true,"stop":)" + stop)));
    EXPECT_EQ(stream.texts.at(0), text) << stop;
    EXPECT_EQ(stream.finish.at(0), std::vector<std::string>{"stop"});
  }
  EXPECT_EQ(
      text_of(served().post(kChat, chat(R"("stop":"own","include_stop_str_in_output":true)"))),
      "The quick brown");
  EXPECT_EQ(text_of(served().post(kChat, chat(R"("stop_token_ids":[263])"))), "The quick brown");
}

// SMP-06, STOP-03.
TEST_F(ScriptChat, LimitsAndReasons) {
  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {R"("max_tokens":200)", kScriptText, "stop"},
      {R"("max_tokens":12)", kScriptText, "stop"},
      {R"("max_tokens":11)", kScriptText, "length"},
      {R"("max_tokens":3)", "The quick br", "length"},
      {R"("max_tokens":1)", "The", "length"},
      {R"("max_tokens":-1)", kScriptText, "stop"},
      {R"("max_tokens":0)", "", "length"},
      {R"("max_tokens":1000000000000000000)", kScriptText, "stop"},
      {R"("max_tokens":5,"max_completion_tokens":1)", "The", "length"}};
  for (const auto& [limit, text, reason] : cases) {
    const Answer whole = served().post(kChat, chat(limit));
    ASSERT_EQ(whole.status, 200) << whole.body;
    EXPECT_EQ(text_of(whole), text) << limit;
    EXPECT_EQ(whole.json().at("choices").at(0).at("finish_reason"), reason.c_str()) << limit;
    const Streamed stream = streamed(served().post(kChat, chat(R"("stream":true,)" + limit)));
    EXPECT_EQ(stream.texts.at(0), text) << limit;
    EXPECT_EQ(stream.finish.at(0), std::vector<std::string>{reason}) << limit;
  }
}

TEST_F(ScriptChat, SeveralAnswers) {
  const json::value whole = served().post(kChat, chat(R"("n":2)")).json();
  ASSERT_EQ(whole.at("choices").as_array().size(), 2u);
  for (int64_t i = 0; i < 2; ++i) {
    EXPECT_EQ(whole.at("choices").at(i).at("index"), i);
    EXPECT_EQ(whole.at("choices").at(i).at("message").at("content"), kScriptText);
    EXPECT_EQ(whole.at("choices").at(i).at("finish_reason"), "stop");
  }
  EXPECT_EQ(whole.at("usage").at("prompt_tokens"), 1);
  EXPECT_EQ(whole.at("usage").at("completion_tokens"), 22);
  const Streamed stream = streamed(served().post(kChat, chat(R"("n":2,"stream":true)")));
  EXPECT_EQ(stream.texts.at(0), kScriptText);
  EXPECT_EQ(stream.texts.at(1), kScriptText);
  EXPECT_EQ(stream.finish.at(0), std::vector<std::string>{"stop"});
  EXPECT_EQ(stream.finish.at(1), std::vector<std::string>{"stop"});
}

// TOK-03.
TEST_F(ScriptChat, NeverHalfACharacter) {
  for (const std::string& fields :
       {std::string(R"("max_tokens":9)"),
        std::string(R"("max_tokens":8,"logit_bias":{"243":100})"),
        std::string(R"("max_tokens":9,"logprobs":true)")}) {
    const Answer whole = served().post(kChat, chat(fields));
    ASSERT_EQ(whole.status, 200) << whole.body;
    const Streamed stream = streamed(served().post(kChat, chat(R"("stream":true,)" + fields)));
    EXPECT_EQ(stream.texts.at(0), text_of(whole));
    EXPECT_EQ(whole.json().at("choices").at(0).at("finish_reason"), "length");
  }
  const Answer cut = served().post(kChat, chat(R"("max_tokens":9)"));
  EXPECT_THAT(
      text_of(cut),
      testing::AnyOf(
          "The quick brown fox jumps over", "The quick brown fox jumps over\xEF\xBF\xBD"));
  EXPECT_EQ(cut.json().at("usage").at("completion_tokens"), 9);
}

TEST_F(ScriptChat, Logprobs) {
  const auto check = [](const json::array& content, size_t tops) {
    std::string bytes;
    ASSERT_EQ(content.size(), 11u);
    for (const json::value& token : content) {
      EXPECT_TRUE(token.at("token").is_string());
      EXPECT_LE(token.at("logprob").to_number<double>(), 1e-6);
      EXPECT_EQ(token.at("top_logprobs").as_array().size(), tops);
      for (const json::value& byte : token.at("bytes").as_array()) {
        bytes += static_cast<char>(byte.as_int64());
      }
      if (tops > 0) {
        EXPECT_EQ(token.at("top_logprobs").at(0).at("token"), token.at("token"));
        EXPECT_TRUE(token.at("top_logprobs").at(0).at("bytes").is_array());
      }
    }
    EXPECT_EQ(bytes, " " + std::string(kScriptText));  // the first token has a space in front
  };
  for (const int tops : {0, 3}) {
    const std::string fields = R"("logprobs":true,"top_logprobs":)" + std::to_string(tops);
    const json::value whole = served().post(kChat, chat(fields)).json();
    check(
        whole.at("choices").at(0).at("logprobs").at("content").as_array(),
        static_cast<size_t>(tops));
    json::array all;
    for (const json::value& chunk :
         streamed(served().post(kChat, chat(R"("stream":true,)" + fields))).chunks) {
      const json::value& logprobs = chunk.at("choices").at(0).at("logprobs");
      for (const json::value& token :
           logprobs.is_null() ? json::array() : logprobs.at("content").as_array()) {
        all.push_back(token);
      }
    }
    check(all, static_cast<size_t>(tops));
  }
}

TEST_F(ScriptChat, MessagesOfAllShapes) {
  for (
      const char* messages :
      {R"([{"role":"developer","content":"be kind"},{"role":"user","content":"hi"}])",
       R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}])",
       R"([{"role":"user","content":""}])",
       R"([{"role":"user","content":"a"},{"role":"assistant","content":""},{"role":"user","content":"b"}])",
       R"([{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":[{"type":"text","text":"ok"}]}])",
       R"([{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"not json"}}]},{"role":"tool","tool_call_id":"c1","content":"ok"}])"}) {
    const Answer answer = served().post(
        kChat, R"({"response_format":{"type":"text"},"messages":)" + std::string(messages) + "}");
    EXPECT_EQ(answer.status, 200) << messages << answer.body;
    EXPECT_EQ(text_of(answer), kScriptText);
  }
}

// CTX-01.
TEST_F(MajorityChat, ContextOverflowIsSaidWithBothNumbers) {
  const auto messages = [](int letters) {
    std::string text;
    for (int i = 0; i < letters; ++i) {
      text += "A";
    }
    return R"({"messages":[{"role":"user","content":")" + text + R"("}])";
  };
  for (const char* stream : {"", R"(,"stream":true)"}) {
    const Answer answer = served().post(kChat, messages(600) + stream + "}");
    EXPECT_EQ(answer.status, 400);
    const json::value error = answer.json().at("error");
    EXPECT_EQ(error.at("code"), "context_length_exceeded");
    const std::string message(error.at("message").as_string());
    EXPECT_THAT(message, HasSubstr("601"));
    EXPECT_THAT(message, HasSubstr("512"));
  }
  const Answer fits = served().post(kChat, messages(510) + "}");
  EXPECT_EQ(fits.status, 200) << fits.body;
  EXPECT_EQ(text_of(fits), "A");
  EXPECT_EQ(fits.json().at("choices").at(0).at("finish_reason"), "length");
  EXPECT_EQ(served().post(kChat, messages(511) + "}").status, 400);
  const Answer cut =
      served().post(kChat, messages(600) + R"(,"truncate_prompt_tokens":20,"max_tokens":2})");
  EXPECT_EQ(cut.json().at("usage").at("prompt_tokens"), 20) << cut.body;
}

// STR: cut off within a character, an answer ends before it, on every route.
TEST_F(ScriptChat, EndsBeforeACharacterThatIsCut) {
  for (const char* tokens : {"8", "9", "10"}) {
    const std::string limit = std::string(R"("max_tokens":)") + tokens;
    const std::string whole = "The quick brown fox jumps over";
    const Answer chat =
        served().post(kChat, R"({"messages":[{"role":"user","content":"hi"}],)" + limit + "}");
    EXPECT_EQ(text_of(chat), whole);
    EXPECT_EQ(chat.json().at("choices").at(0).at("finish_reason"), "length");
    const Answer stream = served().post(
        kChat, R"({"messages":[{"role":"user","content":"hi"}],"stream":true,)" + limit + "}");
    EXPECT_EQ(streamed(stream).texts.at(0), whole);
    EXPECT_THAT(
        served().post("/v1/completions", R"({"prompt":"",)" + limit + "}").body,
        testing::Not(HasSubstr("\xef\xbf\xbd")));
    EXPECT_THAT(
        served()
            .post("/v1/messages", R"({"messages":[{"role":"user","content":"hi"}],)" + limit + "}")
            .body,
        testing::Not(HasSubstr("\xef\xbf\xbd")));
  }
}

// CTX-02.
TEST_F(MajorityChat, TheSamePromptAgain) {
  const std::string body = R"({"max_tokens":8,"messages":[{"role":"user","content":")" +
                           std::string(300, 'B') + R"("}]})";
  const Answer cold = served().post(kChat, body);
  const Answer warm = served().post(kChat, body);
  EXPECT_EQ(text_of(cold), "BBBBBBBB");
  EXPECT_EQ(text_of(warm), text_of(cold));
  const int64_t cached =
      warm.json().at("usage").at("prompt_tokens_details").at("cached_tokens").as_int64();
  EXPECT_GT(cached, 200);
  EXPECT_LT(cached, 301);
  const Answer alone = served().post(kChat, R"({"cache_prompt":false,)" + body.substr(1));
  EXPECT_EQ(alone.json().at("usage").at("prompt_tokens_details").at("cached_tokens"), 0);
}

TEST_F(LoopChat, EndsWithTheContext) {
  const json::value body = served().post(kChat, chat()).json();
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason"), "length");
  EXPECT_EQ(body.at("usage").at("total_tokens"), 512);
}

// HTTP-01: whoever goes away frees exactly what is his, in whatever state it is.
TEST_F(LoopChat, ClientsThatGoAway) {
  const auto busy = [&] { return served().stats().running + served().stats().waiting; };
  for (int i = 0; i < 12; ++i) {
    Client c = served().client();
    c.post(kChat, chat(i % 2 == 0 ? R"("stream":true)" : ""));
    if (i % 2 == 0) {
      c.read_head();
      c.read_chunk();
    }
    i % 4 < 2 ? c.reset() : c.close();
    EXPECT_TRUE(soon([&] { return busy() == 0; }, 2)) << i;
  }
  EXPECT_TRUE(soon([&] { return served().app.active().list().empty(); }));
  EXPECT_TRUE(served().metric("quince:request_success_total{finished_reason=\"abort\"}") > 0);
  EXPECT_EQ(served().post(kChat, chat(R"("max_tokens":3)")).status, 200);
}

// As `nc -N` does: all is said, the answer is awaited.
TEST_F(LoopChat, ClientsThatOnlyEndTheirSide) {
  for (const char* more : {R"("max_tokens":100)", R"("max_tokens":100,"stream":true)"}) {
    Client c = served().client();
    c.post(kChat, chat(more));
    c.end_writing();
    const Answer answer = c.read_answer();
    EXPECT_EQ(answer.status, 200);
    EXPECT_THAT(answer.body, HasSubstr("\"length\"")) << more;
  }
}

TEST_F(LoopChat, CancelledFromElsewhere) {
  Client c = served().client();
  c.post(kChat, chat(R"("stream":true)"));
  const std::string id = c.read_head().headers.at("x-request-id");
  const Answer answer = served().post("/v1/cancel/" + id, "");
  if (answer.status == 200) {  // or it has ended by itself
    std::string rest;
    while (auto chunk = c.read_chunk()) {
      rest += *chunk;
    }
    EXPECT_THAT(rest, testing::EndsWith("data: [DONE]\n\n"));
  }
  EXPECT_EQ(served().post("/v1/cancel/nothing", "").status, 404);
}

// HTTP-12.
TEST(Queue, IsBoundedAndSaysSo) {
  EngineOptions engine;
  engine.max_running = 1;
  engine.max_waiting = 2;
  engine.context_length = 200000;  // so that nobody ends by himself
  Served served(serve_script(Script::loop, "L", engine));
  std::vector<Client> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(served.client());
    clients.back().post(kChat, chat());  // a stream that nobody reads would make room
    ASSERT_TRUE(
        soon([&] { return served.app.active().list().size() == static_cast<size_t>(i + 1); }));
  }
  for (int i = 0; i < 5; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const Answer refused = served.post(kChat, chat(i % 2 == 0 ? R"("stream":true)" : ""));
    EXPECT_EQ(refused.status, 503);
    EXPECT_GE(std::stoi(refused.headers.at("retry-after")), 1);
    EXPECT_TRUE(refused.json().at("error").at("message").is_string());
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  }
  EXPECT_EQ(served.get("/health").status, 200);
  EXPECT_EQ(served.metric("quince:num_requests_running"), 1);
  clients[2].close();  // one that waits
  EXPECT_TRUE(soon([&] { return served.app.active().list().size() == 2; }));
  // Within a step of the engine its place is free.
  std::optional<Client> again;
  EXPECT_TRUE(soon([&] {
    again.emplace(served.client());
    again->post(kChat, chat());
    return soon([&] { return served.app.active().list().size() == 3; }, 0.2);
  }));
  again.reset();
  clients.clear();
  EXPECT_TRUE(soon([&] { return served.stats().running + served.stats().waiting == 0; }));
}

// A reader that is slow pauses its own answer; the others do not notice.
TEST(SlowReader, PausesItsOwnAnswer) {
  EngineOptions engine;
  engine.context_length = 100000;
  engine.max_running = 2;
  server::HttpOptions http;
  http.send_buffer = 4096;
  http.piece = 4096;
  Served served(serve_script(Script::loop, "L", engine), {}, http);
  Client slow(served.server->port(), 4096);
  slow.post(kChat, chat(R"("stream":true,"logprobs":true,"top_logprobs":5)"));
  slow.read_head();
  // It stands still, after what the buffers between hold.
  int before = -1;
  ASSERT_TRUE(soon([&] {
    ::usleep(200000);
    const int now = served.app.active().list().at(0)->streams.at(0).stats().generated_tokens;
    return now > 0 && now == std::exchange(before, now);
  }));
  EXPECT_LT(before, 5000);
  const Answer fast = served.post(kChat, chat(R"("max_tokens":300)"));
  EXPECT_EQ(fast.json().at("usage").at("completion_tokens"), 300);
  EXPECT_EQ(served.app.active().list().at(0)->streams.at(0).stats().generated_tokens, before);
  // More of them than may advance together keep nobody out.
  std::vector<Client> others;
  for (int i = 0; i < 3; ++i) {
    others.emplace_back(served.server->port(), 4096);
    others.back().post(kChat, chat(R"("stream":true,"logprobs":true,"top_logprobs":5)"));
    others.back().read_head();
  }
  EXPECT_EQ(served.post(kChat, chat(R"("max_tokens":30)")).status, 200);
  others.clear();
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(slow.read_chunk());
  }
  EXPECT_TRUE(soon([&] {
    return served.app.active().list().at(0)->streams.at(0).stats().generated_tokens > before;
  }));
}

}  // namespace

}  // namespace quince::test
