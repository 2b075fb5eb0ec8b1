// What clients get wrong, and what they are told.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "server/served.h"

namespace quince::test {

namespace {

namespace json = boost::json;
using testing::HasSubstr;

constexpr const char* kChat = "/v1/chat/completions";

std::string chat(const std::string& fields) {
  return R"({"messages":[{"role":"user","content":"hi"}],)" + fields + "}";
}

const std::vector<std::string>& post_routes() {
  static const std::vector<std::string> routes = {
      kChat, "/v1/completions", "/completion", "/tokenize", "/detokenize", "/apply-template"};
  return routes;
}

// An error in OpenAI's form that names the field.
void expect_error(const Answer& answer, const std::string& field, int status = 400) {
  ASSERT_EQ(answer.status, status) << answer.body;
  const json::value error = answer.json().at("error");
  EXPECT_TRUE(error.at("type").is_string());
  EXPECT_TRUE(error.as_object().contains("param"));
  EXPECT_TRUE(error.as_object().contains("code"));
  EXPECT_THAT(std::string(error.at("message").as_string()), HasSubstr(field));
}

class Requests : public ServedTest<Script::script> {
 protected:
  static void TearDownTestSuite() {
    // Alive, after all of that.
    EXPECT_EQ(text_of(served().post(kChat, chat(R"("seed":1)"))), kScriptText);
    ServedTest::TearDownTestSuite();
  }
};

// SMP-01 and relatives.
TEST_F(Requests, SamplingFieldsOutOfRange) {
  for (const char* field :
       {"temperature",
        "top_p",
        "min_p",
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
        "typical_p",
        "xtc_probability",
        "mirostat_tau",
        "dry_multiplier"}) {
    for (const char* value : {"1e400", "-101", "\"0.7\"", "[]", "true", "{}"}) {
      const Answer answer =
          served().post(kChat, chat("\"" + std::string(field) + "\":" + std::string(value)));
      expect_error(answer, std::string(value) == "1e400" ? "" : field);
    }
  }
  for (const char* body :
       {R"("temperature":NaN)", R"("temperature":Infinity)", R"("top_p":-Infinity)"}) {
    expect_error(served().post(kChat, chat(body)), "not JSON");
  }
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"n", "0"},
      {"n", "-1"},
      {"n", "100000"},
      {"n", "1.5"},
      {"max_tokens", "1.5"},
      {"max_tokens", "-2"},
      {"max_tokens", "\"5\""},
      {"seed", "1.5"},
      {"seed", "\"x\""},
      {"top_k", "1.5"},
      {"top_k", "-2"},
      {"stream", "\"yes\""},
      {"stop", "5"},
      {"stop", "[1]"},
      {"logit_bias", "[1]"},
      {"logit_bias", "5"},
      {"logit_bias", R"({"191222":-100})"},
      {"logit_bias", R"({"-1":5})"},
      {"logit_bias", R"({"abc":1})"},
      {"logit_bias", R"({"259":"x"})"},
      {"logit_bias", R"({"259":1e308})"},
      {"logit_bias", R"({"384":1})"},
      {"logprobs", "5"},
      {"top_logprobs", "3"},
      {"top_logprobs", "-1"},
      {"min_tokens", "-1"},
      {"mirostat", "3"},
      {"samplers", R"(["top_q"])"},
      {"samplers", R"("top_k;top_k")"},
      {"bad_words", R"([""])"},
      {"bad_words", "7"},
      {"stop_token_ids", "[999]"},
      {"stop_token_ids", "\"a\""},
      {"allowed_token_ids", "[-1]"},
      {"best_of", "2"},
      {"t_max_predict_ms", "\"soon\""},
      {"cache_prompt", "1"},
      {"ignore_eos", "0"},
      {"stream_options", "true"},
      {"chat_template_kwargs", "[]"},
      {"model", "5"}};
  for (const auto& [field, value] : cases) {
    const Answer answer = served().post(kChat, chat("\"" + field + "\":" + value));
    expect_error(answer, field);
    EXPECT_EQ(answer.headers.at("connection"), "keep-alive");
  }
}

// SMP-03, with the refused ones above.
TEST_F(Requests, SamplingFieldsThatAreTaken) {
  for (
      const char* fields :
      {R"("temperature":0)",
       R"("temperature":1e-5)",
       R"("temperature":1e-30)",
       R"("temperature":null)",
       R"("temperature":2,"top_k":1)",
       R"("top_k":-1)",
       R"("max_tokens":null,"stop":null,"seed":-1,"logit_bias":null,"n":null)",
       R"("logit_bias":{})",
       R"("samplers":["top_k","temperature"])",
       R"("samplers":"top_k;temp")",
       R"("mirostat":2,"dynatemp_range":0.5,"xtc_probability":0.1,"typical_p":0.9,"top_n_sigma":1)",
       R"("dry_multiplier":0.5,"dry_sequence_breakers":["\n"],"repeat_last_n":-1)",
       R"("user":"u","metadata":{"a":"b"},"service_tier":"auto","store":false)"}) {
    const Answer answer = served().post(kChat, chat(fields));
    ASSERT_EQ(answer.status, 200) << fields << answer.body;
    EXPECT_EQ(text_of(answer), kScriptText) << fields;
    EXPECT_FALSE(answer.headers.contains("x-quince-ignored"))
        << answer.headers.at("x-quince-ignored");
  }
  EXPECT_EQ(
      text_of(served().post(kChat, chat(R"("logit_bias":{"266":100},"max_tokens":4)"))), "AAAA");
  EXPECT_EQ(text_of(served().post(kChat, chat(R"("logit_bias":[["A",90]],"max_tokens":2)"))), "AA");
  EXPECT_EQ(
      text_of(served().post(kChat, chat(R"("allowed_token_ids":[267],"max_tokens":3)"))), "BBB");
  EXPECT_THAT(
      text_of(served().post(kChat, chat(R"("logit_bias":{"259":-100})"))),
      testing::Not(testing::StartsWith("The")));
  EXPECT_THAT(
      text_of(served().post(kChat, chat(R"("bad_words":["The"],"max_tokens":5)"))),
      testing::Not(HasSubstr("The")));
  EXPECT_EQ(
      served()
          .post(kChat, chat(R"("ignore_eos":true,"max_tokens":20)"))
          .json()
          .at("usage")
          .at("completion_tokens"),
      20);
  std::string many = R"("logit_bias":{)";
  for (int i = 0; i < 384; ++i) {
    many.append(i == 0 ? "\"" : ",\"").append(std::to_string(i)).append("\":0.5");
  }
  EXPECT_EQ(served().post(kChat, chat(many + "}")).status, 200);
}

TEST_F(Requests, UnknownFieldsAreListed) {
  const Answer answer = served().post(kChat, chat(R"("unknown_field":{"a":1},"other":2)"));
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("x-quince-ignored"), "unknown_field, other");
  server::AppOptions strict;
  strict.strict = true;
  Served other(serve_script(Script::script, "S"), strict);
  expect_error(other.post(kChat, chat(R"("unknown_field":1)")), "unknown_field");
  EXPECT_EQ(other.post(kChat, chat(R"("temperature":0)")).status, 200);
}

// HTTP-06.
TEST_F(Requests, BodiesThatAreWrong) {
  for (const std::string& route : post_routes()) {
    for (
        const std::string& body : std::vector<std::string>{
            "",
            "{",
            "[]",
            "\"x\"",
            "{}",
            R"({"model":"S"} garbage)",
            "NaN",
            "{\"messages\":\"\xff\xfe\"}",
            "{\"prompt\":\"\xc4\xe3\xba\xc3\"}",
            R"({"messages":"hi"})",
            R"({"messages":[1]})",
            R"({"messages":[{}]})",
            R"({"messages":[{"role":"user"}]})",
            R"({"messages":[{"role":"wizard","content":"x"}]})",
            R"({"messages":[]})",
            R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]})",
            R"({"messages":[{"role":"user","content":5}]})",
            R"({"prompt":{},"content":{},"tokens":{}})",
            R"({"prompt":[null],"content":[1],"tokens":["a"]})",
            R"({"prompt":[999999],"tokens":[999999]})",
            R"({"model":5,"prompt":"x","content":"x","tokens":[]})"}) {
      const Answer answer = served().post(route, body);
      EXPECT_EQ(answer.status, 400) << route << body;
      EXPECT_TRUE(answer.json().at("error").at("message").is_string());
    }
  }
  Client c = served().client();  // one connection bears it all
  for (int i = 0; i < 3; ++i) {
    c.post(kChat, "{");
    EXPECT_EQ(c.read_answer().status, 400);
    c.post(
        kChat,
        "\xef\xbb\xbf" + chat(R"("max_tokens":1,"max_tokens":2,"stop":"\u0000")"),
        "Content-Encoding: x\r\n");
    EXPECT_EQ(c.read_answer().status, 200);
  }
}

TEST_F(Requests, BodiesThatAreNotUtf8) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{\"messages\":\"a\xff\"}", "byte 14 (0xff)"},
      {"{\"messages\":\"\xc3\xa9\xed\xa0\x80\"}", "byte 15 (0xed)"},  // half a character
      {"{\"messages\":\"\xef\xbf\"}", "byte 13 (0xef)"},              // begins as U+FFFD does
      {"\xef\xbb\xbf{\"messages\":\"\xc0\x80\"}", "byte 16 (0xc0)"},
      {std::string("\xff\xfe{\0}\0", 6), "byte 0 (0xff)"},  // UTF-16
      {"{\"messages\":\"\xe6\x97", "byte 13 (0xe6)"}};
  for (const std::string& route : post_routes()) {
    for (const auto& [body, place] : cases) {
      const Answer answer = served().post(route, body);
      expect_error(answer, "not UTF-8");
      EXPECT_THAT(answer.body, HasSubstr(place)) << route;
    }
  }
  expect_error(served().post(kChat, "{\"a\":"), "not JSON");
}

TEST_F(Requests, APenaltyThatIsNextToNothing) {
  for (const char* value : {"1e-30", "0", "1e10"}) {
    const Answer answer =
        served().post(kChat, chat(std::string(R"("repetition_penalty":)") + value));
    expect_error(answer, "want a number from 0.000001 up (1: off), at most 1e+09");
    EXPECT_EQ(answer.json().at("error").at("param"), "repetition_penalty");
  }
  // Whatever is allowed leaves numbers to choose by.
  for (const char* penalty : {"0.000001", "1e9"}) {
    for (const char* steps :
         {R"(["penalties","dry","temperature","typ_p","top_p"])",
          R"(["dry","penalties","temperature","top_n_sigma","typ_p"])",
          R"(["temperature","dry","penalties","top_n_sigma","top_p"])"}) {
      const Answer answer = served().post(
          "/completion",
          std::string(
              R"({"prompt":"AAAAAAAA","n_predict":20,"ignore_eos":true,"top_n_sigma":1e9,)") +
              R"("typical_p":0.9,"top_p":0.9,"dry_multiplier":1e9,"dry_base":1e9,)" +
              R"("dry_allowed_length":0,"temperature":1e-9,"repeat_last_n":-1,)" +
              R"("repetition_penalty":)" + penalty + R"(,"samplers":)" + steps + "}");
      EXPECT_EQ(answer.status, 200) << answer.body;
    }
  }
}

// JSON-07.
TEST_F(Requests, NestedDeeply) {
  const auto nested = [](int depth) {
    return std::string(static_cast<size_t>(depth), '[') +
           std::string(static_cast<size_t>(depth), ']');
  };
  for (const std::string& route : post_routes()) {
    for (const int depth : {1000, 10000, 1000000}) {
      const Answer answer = served().post(route, "{\"x\":" + nested(depth) + "}");
      expect_error(answer, "nested");
    }
  }
  EXPECT_EQ(served().post(kChat, chat("\"x\":" + nested(30))).status, 200);
}

// JSON-01: bad forms end nobody else's answer, and a form that was asked for is held to.
TEST_F(Requests, FormsOfAnswers) {
  for (const char* form :
       {R"("grammar":"root ::= (")",
        R"("grammar":"asdf")",
        R"("grammar":"a ::= \"x\"")",
        R"("grammar":"root ::= root")",
        R"("json_schema":{"type":"banana"})",
        R"("json_schema":{"type":"array","items":5})",
        R"("json_schema":{"type":"string","pattern":"["})",
        R"("json_schema":5)",
        R"("response_format":{"type":"xml"})",
        R"("response_format":{})",
        R"("response_format":{"type":"json_schema"})",
        R"("response_format":{"type":"json_schema","json_schema":{"schema":null}})",
        R"("response_format":{"type":"json_schema","json_schema":{"schema":5}})",
        R"("structured_outputs":{"jsn":{}})",
        R"("structured_outputs":{"choice":[]})",
        R"("structured_outputs":{"regex":"("})",
        R"("grammar":"root ::= \"a\"","json_schema":{})"}) {
    const Answer answer = served().post(kChat, chat(form));
    EXPECT_EQ(answer.status, 400) << form << answer.body;
  }
  const std::vector<std::pair<std::string, std::string>> good = {
      {R"("structured_outputs":{"choice":["AB","CC"]})", "AB|CC"},
      {R"("structured_outputs":{"regex":"[BC]{3}"})", "[BC]{3}"},
      {R"("grammar":"root ::= \"x\" [0-9]")", "x[0-9]"},
      {R"("guided_choice":["A"])", "A"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"enum":[null]}}})",
       "null"},
      {R"("json_schema":{"const":7})", "7"}};
  for (const auto& [form, pattern] : good) {
    const Answer answer = served().post(kChat, chat(form));
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_THAT(text_of(answer), testing::MatchesRegex(pattern)) << form;
    const Streamed stream = streamed(served().post(kChat, chat(R"("stream":true,)" + form)));
    EXPECT_EQ(stream.texts.at(0), text_of(answer));
  }
}

TEST_F(Requests, RoutesAndMethods) {
  expect_error(served().get("/nothing"), "/nothing", 404);
  expect_error(served().get("/v1/chat/completions/x"), "", 404);
  const Answer wrong = served().get(kChat);
  expect_error(wrong, "POST", 405);
  EXPECT_EQ(wrong.headers.at("allow"), "POST");
  EXPECT_EQ(wrong.json().at("error").at("type"), "invalid_request_error");
  const Answer anthropic = served().get("/v1/messages");
  EXPECT_EQ(anthropic.status, 405);
  EXPECT_EQ(anthropic.headers.at("allow"), "POST");
  EXPECT_EQ(anthropic.json().at("error").at("type"), "invalid_request_error");
  EXPECT_EQ(served().get("/v1/models/").status, 200);
  expect_error(served().post(kChat, chat(R"("model":"gpt-9")")), "gpt-9", 404);
  EXPECT_EQ(
      served().post(kChat, chat(R"("model":"gpt-9")")).json().at("error").at("code"),
      "model_not_found");
  EXPECT_EQ(served().post(kChat, chat(R"("model":"other-name")")).status, 200);
}

TEST_F(Requests, Models) {
  const json::value list = served().get("/v1/models").json();
  EXPECT_EQ(list.at("object"), "list");
  const json::value& model = list.at("data").at(0);
  EXPECT_EQ(model.at("id"), "S");
  EXPECT_EQ(model.at("object"), "model");
  EXPECT_EQ(model.at("created"), 1700000000);
  EXPECT_EQ(model.at("context_length"), 512);
  EXPECT_EQ(list.at("data").at(1).at("id"), "other-name");
  EXPECT_EQ(served().get("/v1/models/S").json(), model);
  expect_error(served().get("/v1/models/T"), "T", 404);
}

// TOK-01 and the completions' own shapes.
TEST_F(Requests, Completions) {
  const auto ask = [](const std::string& prompt, const std::string& fields = "") {
    return served().post("/v1/completions", R"({"prompt":)" + prompt + fields + "}");
  };
  const auto prompt_tokens = [&](const std::string& prompt) {
    return ask(prompt).json().at("usage").at("prompt_tokens").as_int64();
  };
  EXPECT_EQ(prompt_tokens(R"("")"), 1);
  EXPECT_EQ(prompt_tokens(R"("A")"), 2);
  EXPECT_EQ(prompt_tokens(R"("<s>A")"), 2);
  EXPECT_EQ(prompt_tokens("[1]"), 1);
  EXPECT_EQ(prompt_tokens("[[1],[1,266]]"), 3);
  EXPECT_EQ(prompt_tokens("[]"), 1);
  const json::value two = ask("[[1],[1]]", R"(,"n":2,"max_tokens":2)").json();
  ASSERT_EQ(two.at("choices").as_array().size(), 4u);
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(two.at("choices").at(i).at("index"), i);
    EXPECT_EQ(two.at("choices").at(i).at("text"), "The quick");
  }
  EXPECT_EQ(two.at("object"), "text_completion");
  const json::value logprobs =
      ask("[1]", R"(,"logprobs":2,"max_tokens":3)").json().at("choices").at(0).at("logprobs");
  EXPECT_EQ(logprobs.at("tokens").as_array().size(), 3u);
  EXPECT_EQ(logprobs.at("token_logprobs").as_array().size(), 3u);
  EXPECT_EQ(logprobs.at("top_logprobs").at(0).as_object().size(), 2u);
  EXPECT_EQ(logprobs.at("text_offset"), json::parse("[0,4,10]"));
  EXPECT_EQ(ask("[1]", R"(,"logprobs":0,"max_tokens":1)").status, 200);
  EXPECT_EQ(text_of(ask("[1]", R"(,"best_of":3,"max_tokens":1)")), "The");
  expect_error(ask("[1]", R"(,"best_of":3,"stream":true)"), "best_of");
  expect_error(ask("[1]", R"(,"suffix":"x")"), "suffix");
  EXPECT_EQ(
      text_of(ask(R"("A")", R"(,"echo":true,"max_tokens":1,"logit_bias":{"267":100})")), "AB");
  const Answer echoed =
      ask(R"("A")", R"(,"echo":true,"logprobs":1,"max_tokens":1,"logit_bias":{"267":100})");
  EXPECT_EQ(
      echoed.json().at("choices").at(0).at("logprobs").at("text_offset").at(0), json::value(1));
  const Streamed stream =
      streamed(ask("[1]", R"(,"stream":true,"stream_options":{"include_usage":true})"));
  EXPECT_EQ(stream.texts.at(0), kScriptText);
  EXPECT_EQ(stream.finish.at(0), std::vector<std::string>{"stop"});
  EXPECT_EQ(stream.chunks.front().at("object"), "text_completion");
  EXPECT_EQ(stream.chunks.back().at("usage").at("completion_tokens"), 11);
}

TEST_F(Requests, CompletionAsLlamaServerHasIt) {
  expect_error(served().post("/completion", R"({"prompt":[1],"best_of":2})"), "best_of");
  const Answer whole = served().post("/completion", R"({"prompt":[1],"n_predict":3,"n_probs":2})");
  ASSERT_EQ(whole.status, 200) << whole.body;
  const json::value body = whole.json();
  EXPECT_EQ(body.at("content"), "The quick br");
  EXPECT_EQ(body.at("stop"), true);
  EXPECT_EQ(body.at("stop_type"), "limit");
  EXPECT_EQ(body.at("tokens_predicted"), 3);
  EXPECT_EQ(body.at("tokens_evaluated"), 1);
  EXPECT_EQ(body.at("completion_probabilities").at(0).at("id"), 259);
  EXPECT_EQ(body.at("completion_probabilities").at(0).at("top_logprobs").as_array().size(), 2u);
  EXPECT_EQ(body.at("generation_settings").at("n_predict"), 3);
  EXPECT_TRUE(body.at("timings").at("predicted_per_second").is_number());
  const auto word = served().post("/completion", R"({"prompt":[1],"stop":["fox"]})").json();
  EXPECT_EQ(word.at("stop_type"), "word");
  EXPECT_EQ(word.at("stopping_word"), "fox");
  EXPECT_EQ(served().post("/completion", R"({"prompt":[[1],[1]]})").json().as_array().size(), 2u);
  const auto stream = events(served().post("/completion", R"({"prompt":[1],"stream":true})").body);
  std::string text;
  for (const std::string& event : stream) {
    const json::value chunk = json::parse(event);
    text += std::string(chunk.at("content").as_string());
    EXPECT_EQ(chunk.at("stop").as_bool(), &event == &stream.back());
  }
  EXPECT_EQ(text, kScriptText);
}

TEST_F(Requests, Tokens) {
  EXPECT_EQ(
      served().post("/tokenize", R"({"content":"AB"})").json().at("tokens"),
      json::parse("[266,267]"));
  EXPECT_EQ(
      served().post("/tokenize", R"({"content":"AB","add_special":true})").json().at("tokens"),
      json::parse("[1,266,267]"));
  EXPECT_EQ(
      served()
          .post("/tokenize", R"({"content":"A\ud83d\udc69","with_pieces":true})")
          .json()
          .at("tokens")
          .at(1)
          .at("piece"),
      json::parse("[240]"));
  EXPECT_EQ(served().post("/detokenize", R"({"tokens":[266,267]})").json().at("content"), "AB");
  EXPECT_EQ(
      served()
          .post("/apply-template", R"({"messages":[{"role":"user","content":"x"}]})")
          .json()
          .at("prompt"),
      "<s>");
}

TEST_F(Requests, WhatOperatorsAsk) {
  EXPECT_EQ(served().get("/health").json().at("status"), "ok");
  const json::value props = served().get("/props").json();
  EXPECT_EQ(props.at("total_slots"), 32);
  EXPECT_EQ(props.at("bos_token"), "<s>");
  EXPECT_EQ(props.at("chat_template"), "{{ bos_token }}");
  EXPECT_EQ(served().get("/slots").json().as_array().size(), 32u);
  EXPECT_TRUE(served().get("/version").json().at("version").is_string());
  const double before = served().metric("quince:generation_tokens_total");
  const double requests = served().metric("quince:request_success_total{finished_reason=\"stop\"}");
  served().post(kChat, chat(R"("n":2)"));
  EXPECT_EQ(served().metric("quince:generation_tokens_total"), before + 22);
  EXPECT_EQ(
      served().metric("quince:request_success_total{finished_reason=\"stop\"}"), requests + 2);
  EXPECT_GT(served().metric("quince:time_to_first_token_seconds_count"), 0);
  EXPECT_GT(served().metric("llamacpp:tokens_predicted_total"), 0);
}

// Keys, and web pages (HTTP-08).
TEST(Keys, AreNeededEverywhereButForHealth) {
  server::AppOptions options;
  options.api_keys = {"first-key", "second"};
  options.cors_origin = "http://app.test";
  Served served(serve_script(Script::script, "S"), options);
  EXPECT_EQ(served.get("/health").status, 200);
  for (const char* path :
       {"/v1/models",
        "/metrics",
        "/props",
        "/slots",
        "/nothing",
        "/v1/../v1/models",
        "/%2fhealth/x",
        "//health"}) {
    for (const char* key :
         {"",
          "Authorization: Bearer wrong\r\n",
          "Authorization: first-key\r\n",
          "Authorization: Bearer first-ke\r\n",
          "x-api-key: \r\n"}) {
      const Answer answer = served.get(path, key);
      expect_error(answer, "API key", 401);
      EXPECT_EQ(answer.headers.at("access-control-allow-origin"), "http://app.test");
    }
  }
  EXPECT_EQ(served.post(kChat, chat(R"("n":1)")).status, 401);
  EXPECT_EQ(served.get("/v1/models", "Authorization: Bearer first-key\r\n").status, 200);
  EXPECT_EQ(served.get("/v1/models", "x-api-key: second\r\n").status, 200);
  EXPECT_EQ(served.post(kChat, chat(R"("n":1)"), "authorization: bearer second\r\n").status, 200);

  Client page = served.client();
  page.send(
      "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: t\r\nOrigin: http://app.test\r\n"
      "Access-Control-Request-Method: POST\r\n"
      "Access-Control-Request-Headers: authorization,content-type,x-title\r\n\r\n");
  const Answer preflight = page.read_answer();
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.headers.at("access-control-allow-origin"), "http://app.test");
  EXPECT_THAT(preflight.headers.at("access-control-allow-methods"), HasSubstr("POST"));
  EXPECT_THAT(preflight.headers.at("access-control-allow-headers"), HasSubstr("x-title"));
  EXPECT_EQ(preflight.headers.at("vary"), "Origin");

  server::AppOptions closed;
  closed.cors_origin = "";
  Served other(nullptr, closed);
  EXPECT_FALSE(other.get("/health").headers.contains("access-control-allow-origin"));
}

// Any page that a browser has open could otherwise ask the model on this machine.
TEST(Origins, PagesOfThisMachineMayAsk) {
  Served served(nullptr);
  const auto allowed = [&](const std::string& origin) {
    const Answer answer = served.get("/health", "Origin: " + origin + "\r\n");
    const auto found = answer.headers.find("access-control-allow-origin");
    return found != answer.headers.end() && found->second == origin;
  };
  EXPECT_TRUE(allowed("http://localhost:3000"));
  EXPECT_TRUE(allowed("https://127.0.0.1"));
  EXPECT_TRUE(allowed("http://[::1]:8000"));
  EXPECT_FALSE(allowed("http://evil.test"));
  EXPECT_FALSE(allowed("http://localhost.evil.test"));
  EXPECT_FALSE(allowed("null"));
}

TEST(Loading, IsSaid) {
  Served served(nullptr);
  served.app.set_progress(0.25);
  const Answer health = served.get("/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(health.json().at("progress").to_number<double>(), 0.25);
  const Answer answer = served.post(kChat, chat(R"("n":1)"));
  expect_error(answer, "25%", 503);
  EXPECT_TRUE(answer.headers.contains("retry-after"));
  EXPECT_EQ(served.get("/v1/models").status, 200);
  EXPECT_EQ(served.get("/metrics").status, 200);
  served.app.set_model(serve_script(Script::script, "S"));
  EXPECT_EQ(served.get("/health").status, 200);
  EXPECT_EQ(text_of(served.post(kChat, chat(R"("n":1)"))), kScriptText);
}

}  // namespace

}  // namespace quince::test
