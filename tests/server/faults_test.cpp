// What clients got wrong answers for, once.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "engine/fakes.h"
#include "server/served.h"

namespace quince::test {

namespace {

namespace json = boost::json;
using testing::HasSubstr;

constexpr const char* kChat = "/v1/chat/completions";

std::string chat(const std::string& fields) {
  return R"({"messages":[{"role":"user","content":"hi"}],)" + fields + "}";
}

json::value error_of(const Answer& answer, int status = 400) {
  EXPECT_EQ(answer.status, status) << answer.body;
  return answer.json().at("error");
}

class Faults : public ServedTest<Script::script> {};

// Who waits has no slot, and there are never more than there are.
TEST(Slots, OnlyWhatRuns) {
  EngineOptions two;
  two.max_running = 2;
  two.context_length = 100000;
  Served served(serve_script(Script::loop, "L", two));
  std::vector<Client> clients;
  for (int i = 0; i < 5; ++i) {
    clients.push_back(served.client());
    clients.back().post(
        "/v1/completions", R"({"prompt":"","max_tokens":5000,"stream":true,"ignore_eos":true})");
    clients.back().read_head();
  }
  const auto count = [&](const json::value& slots) {
    return std::count_if(slots.as_array().begin(), slots.as_array().end(), [](const auto& slot) {
      return slot.at("is_processing") == true;
    });
  };
  EXPECT_TRUE(soon([&] {
    const json::value slots = served.get("/slots").json();
    EXPECT_EQ(slots.as_array().size(), 2u);
    EXPECT_EQ(slots.at(0).at("id"), 0);
    EXPECT_EQ(slots.at(1).at("id"), 1);
    return count(slots) == 2 && slots.at(1).at("route") == "/v1/completions" &&
           slots.at(1).at("n_decoded").as_int64() > 0;
  }));
  clients.clear();
  EXPECT_TRUE(soon([&] { return count(served.get("/slots").json()) == 0; }));
}

// RUN-03: health is red, and nobody waits.
TEST(Health, IsRedWhenTheEngineHasStopped) {
  auto log = std::make_shared<FakeModelLog>();
  auto model = serve_script(Script::script, "S");
  const int vocab = model->engine->info().vocab_size;
  model->engine = std::make_unique<Engine>(
      [=] { return std::make_unique<FakeModel>(vocab, log); }, EngineOptions());
  Served served(model);
  EXPECT_EQ(served.get("/health").status, 200);
  log->broken_caches = true;  // seen when what was computed is kept for others, after the answer
  Client c = served.client();
  c.post("/v1/completions", R"({"prompt":"a","max_tokens":5,"ignore_eos":true,"stream":true})");
  c.read_until("the engine has stopped after an error");
  const Answer health = served.get("/health");
  EXPECT_THAT(
      std::string(error_of(health, 500).at("message").as_string()),
      HasSubstr("the fake cache is broken"));
  EXPECT_EQ(health.json().at("status"), "error");
  error_of(served.post(kChat, chat(R"("max_tokens":1)")), 500);
  error_of(served.post("/v1/embeddings", R"({"input":"a"})"), 500);
}

TEST_F(Faults, ZeroBytesDoNotCutMessages) {
  const Answer answer = served().post(kChat, chat(R"("model":"a\u0000b")"));
  EXPECT_THAT(
      std::string(error_of(answer, 404).at("message").as_string()), HasSubstr("'a\\0b' here"));
  // In what is asked nothing is cut either.
  const Answer tokens = served().post("/tokenize", R"({"content":"A\u0000B"})");
  const std::string ids = json::serialize(tokens.json().at("tokens"));
  EXPECT_EQ(
      served().post("/detokenize", R"({"tokens":)" + ids + "}").json().at("content"),
      json::string_view("A\0B", 3));
}

TEST_F(Faults, HalfCharactersAreNamed) {
  for (const std::string& text : {R"(\ud800)", R"(\udc00x)", R"(\ud800\u0041)", R"(\ud800x)"}) {
    const Answer answer =
        served().post(kChat, R"({"messages":[{"role":"user","content":")" + text + R"("}]})");
    EXPECT_THAT(
        std::string(error_of(answer).at("message").as_string()), HasSubstr("half a character"))
        << text;
  }
  EXPECT_EQ(served().post("/tokenize", R"({"content":"\ud83d\ude00"})").status, 200);
}

const char* const kTools =
    R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"q":{"type":"string","enum":["a"]}},"required":["q"],"additionalProperties":false}}},{"type":"function","function":{"name":"g","parameters":{"type":"object","properties":{},"additionalProperties":false}}}],"max_tokens":200,"temperature":1,"seed":3,"top_k":0,"top_p":1,"min_p":0,)";

TEST_F(Faults, SomeToolsMayBeAllowed) {
  const auto called = [&](const std::string& choice) {
    const Answer answer =
        served().post(kChat, chat(kTools + std::string(R"("tool_choice":)") + choice));
    EXPECT_EQ(answer.status, 200) << answer.body;
    const json::value message = answer.json().at("choices").at(0).at("message");
    const auto* calls = message.as_object().if_contains("tool_calls");
    return calls == nullptr ? std::string()
                            : std::string(calls->at(0).at("function").at("name").as_string());
  };
  for (const std::string& name : {"f", "g"}) {
    const std::string tools =
        R"("tools":[{"type":"function","function":{"name":")" + name + R"("}}])";
    EXPECT_EQ(
        called(R"({"type":"allowed_tools","allowed_tools":{"mode":"required",)" + tools + "}}"),
        name);
    EXPECT_EQ(called(R"({"type":"allowed_tools","mode":"required",)" + tools + "}"), name);
    EXPECT_EQ(
        called(R"({"type":"allowed_tools","allowed_tools":{"mode":"auto",)" + tools + "}}"), "");
  }
  const std::pair<std::string, std::string> wrong[] = {
      {R"({"type":"allowed_tools","allowed_tools":{"mode":"required"}})",
       "tool_choice.allowed_tools.tools"},
      {R"({"type":"allowed_tools","allowed_tools":{"mode":"some","tools":[{"function":{"name":"f"}}]}})",
       "tool_choice.allowed_tools.mode"},
      {R"({"type":"allowed_tools","allowed_tools":{"tools":[{"function":{"name":"h"}}]}})",
       "tool_choice.allowed_tools.tools[0]"},
      {R"({"type":"allowed_tools","tools":[5]})", "tool_choice.tools[0]"}};
  for (const auto& [choice, param] : wrong) {
    const Answer answer =
        served().post(kChat, chat(kTools + std::string(R"("tool_choice":)") + choice));
    EXPECT_EQ(error_of(answer).at("param"), json::value(param));
  }
}

TEST_F(Faults, BadSchemasNameTheirField) {
  const std::string bad = R"({"type":"object","properties":{"a":{"type":"nonsense"}}})";
  const std::pair<std::string, std::string> fields[] = {
      {R"("response_format":{"type":"json_schema","json_schema":{"schema":)" + bad + "}}",
       "response_format"},
      {R"("json_schema":)" + bad, "json_schema"},
      {R"("structured_outputs":{"regex":"("})", "structured_outputs.regex"},
      {R"("grammar":"root ::= nothing")", "grammar"},
      {R"("tool_choice":"required","tools":[{"type":"function","function":{"name":"f","parameters":)" +
           bad + "}}]",
       "tools[0].function.parameters"}};
  for (const auto& [field, param] : fields) {
    const json::value error = error_of(served().post(kChat, chat(field)));
    EXPECT_EQ(error.at("param"), json::value(param)) << field;
    EXPECT_EQ(error.at("code"), "invalid_value");
    EXPECT_GT(error.at("message").as_string().size(), param.size() + 10);
  }
}

TEST_F(Faults, TheTemplatesOwnNamesAreRefused) {
  for (const std::string& name : {"messages", "tools", "add_generation_prompt"}) {
    const Answer answer =
        served().post(kChat, chat(R"("chat_template_kwargs":{")" + name + R"(":[]})"));
    EXPECT_EQ(error_of(answer).at("param"), json::value("chat_template_kwargs." + name));
  }
}

TEST_F(Faults, FieldsThatMeanNothingHaveTheirTypesToo) {
  const std::pair<std::string, std::string> wrong[] = {
      {R"("user":5)", "user"},
      {R"("store":"yes")", "store"},
      {R"("metadata":[])", "metadata"},
      {R"("metadata":{"a":1})", "metadata.a"},
      {R"("service_tier":{})", "service_tier"},
      {R"("safety_identifier":1)", "safety_identifier"},
      {R"("prompt_cache_key":false)", "prompt_cache_key"}};
  for (const auto& [field, param] : wrong) {
    EXPECT_EQ(error_of(served().post(kChat, chat(field))).at("param"), json::value(param));
  }
  const Answer good = served().post(
      kChat,
      chat(
          R"("user":"u","store":true,"metadata":{"a":"b"},"service_tier":"auto","safety_identifier":null)"));
  EXPECT_EQ(good.status, 200) << good.body;
}

TEST_F(Faults, ProbabilitiesOfThePrompt) {
  const json::value body =
      served()
          .post("/v1/completions", R"({"prompt":" The quick","max_tokens":2,"prompt_logprobs":2})")
          .json();
  const json::array& list = body.at("choices").at(0).at("prompt_logprobs").as_array();
  ASSERT_EQ(list.size(), 3u);  // BOS, The, quick
  EXPECT_TRUE(list[0].is_null());
  const json::value& quick = list[2].at("260");
  EXPECT_EQ(quick.at("decoded_token"), " quick");
  EXPECT_EQ(quick.at("rank"), 1);
  EXPECT_NEAR(quick.at("logprob").to_number<double>(), 0, 1e-3);
  EXPECT_EQ(list[2].as_object().size(), 2u);
  const json::value plain =
      served().post(kChat, chat(R"("max_tokens":2,"prompt_logprobs":0)")).json();
  EXPECT_TRUE(plain.at("prompt_logprobs").at(0).is_null());
  EXPECT_EQ(
      error_of(served().post(kChat, chat(R"("stream":true,"prompt_logprobs":0)"))).at("param"),
      "prompt_logprobs");
}

TEST_F(Faults, FillingInNeedsTokensForIt) {
  const Answer answer = served().post("/infill", R"({"input_prefix":"a","input_suffix":"b"})");
  EXPECT_THAT(std::string(error_of(answer).at("message").as_string()), HasSubstr("<|fim_prefix|>"));
}

}  // namespace

}  // namespace quince::test
