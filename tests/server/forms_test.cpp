// Forms of answers: what cannot be held to is refused and hurts nobody, and what can is held to.
#include <chrono>

#include <fmt/format.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "constraint/json_validator.h"
#include "server/served.h"

namespace quince::test {

namespace {

namespace json = boost::json;
using testing::HasSubstr;

constexpr const char* kChat = "/v1/chat/completions";

// JSON-01.
TEST(Forms, ThatAreBadEndNobodysAnswer) {
  EngineOptions engine;
  engine.context_length = 100000;
  Served served(serve_script(Script::loop, "L", engine));
  Client other = served.client();
  constexpr size_t kWords = 3000;
  other.post(
      kChat,
      fmt::format(
          R"({{"messages":[{{"role":"user","content":"hi"}}],"stream":true,"max_tokens":{}}})",
          kWords));
  other.read_head();
  std::string events_so_far = *other.read_chunk();
  const std::vector<std::string> bad = {
      R"("grammar":"root ::= (")",
      R"("grammar":"asdf")",
      R"("grammar":"a ::= \"x\"")",
      R"("grammar":"root ::= root")",
      R"("grammar":"root ::= a\na ::= root \"x\"")",
      R"("grammar":"root ::= \"a\"\nroot ::= \"b\"")",
      R"("json_schema":{"type":"banana"})",
      R"("json_schema":{"type":"array","items":5})",
      R"("json_schema":{"pattern":"["})",
      R"("json_schema":5)",
      R"("response_format":{"type":"xml"})"};
  const std::vector<std::string> schemas = {
      R"({"type":"banana"})", R"({"type":"array","items":5})", R"({"pattern":"["})", "null", "5"};
  std::vector<std::string> all = bad;
  for (const std::string& schema : schemas) {
    all.push_back(fmt::format(
        R"("response_format":{{"type":"json_schema","json_schema":{{"name":"n","schema":{}}}}})",
        schema));
  }
  for (const auto& [route, begin] : std::initializer_list<std::pair<std::string, std::string>>{
           {kChat, R"("messages":[{"role":"user","content":"hi"}])"},
           {"/v1/completions", R"("prompt":"")"},
           {"/completion", R"("prompt":"")"}}) {
    for (const std::string& form : all) {
      for (const char* stream : {"", R"(,"stream":true)"}) {
        const auto start = std::chrono::steady_clock::now();
        const Answer answer =
            served.post(route, fmt::format(R"({{{},{}{}}})", begin, form, stream));
        EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1)) << form;
        ASSERT_EQ(answer.status, 400) << route << form << answer.body;
        EXPECT_TRUE(answer.json().at("error").at("message").is_string());
      }
    }
    const json::value good =
        served.post(route, fmt::format(R"({{{},"grammar":"root ::= \"x\" [0-9]"}})", begin)).json();
    const std::string text(
        route == "/completion" ? good.at("content").as_string()
        : route == "/v1/completions"
            ? good.at("choices").at(0).at("text").as_string()
            : good.at("choices").at(0).at("message").at("content").as_string());
    EXPECT_THAT(text, testing::MatchesRegex("x[0-9]")) << route;
  }
  while (const auto chunk = other.read_chunk()) {
    events_so_far += *chunk;
  }
  Answer answer;
  answer.body = events_so_far;
  const Streamed stream = streamed(answer);
  std::string want;
  for (size_t i = 0; i < kWords; ++i) {
    want += i % 3 == 0 ? " x" : i % 3 == 1 ? " y" : " z";
  }
  EXPECT_EQ(stream.texts.at(0), want.substr(1));
  EXPECT_EQ(stream.finish.at(0), std::vector<std::string>{"length"});
  EXPECT_TRUE(stream.done);
}

// JSON-03. Digits have no end that a schema gives them: what is cut off is no answer.
TEST(Forms, EverySampleFits) {
  EngineOptions engine;
  engine.context_length = 4096;
  Served served(serve_script(Script::dice, "D", engine));
  const std::string many = [] {
    std::string properties;
    for (int i = 0; i < 20; ++i) {
      properties += fmt::format(R"({}"p{}":{{"type":"integer"}})", i == 0 ? "" : ",", i);
    }
    return R"({"type":"object","properties":{)" + properties + "}}";
  }();
  for (
      const std::string& schema : std::vector<std::string>{
          R"({"type":"object","properties":{}})",
          R"({"type":"string","maxLength":5000})",
          R"({"type":"array","items":{"type":"number"},"minItems":3,"maxItems":3})",
          R"({"type":"integer","minimum":-123,"maximum":42})",
          R"({"type":"integer","exclusiveMinimum":0,"maximum":9})",
          R"({"type":"number","minimum":0,"maximum":1})",
          R"({"enum":["a","é\"x",null,3]})",
          R"({"const":{"a":[1]}})",
          R"({"anyOf":[{"type":"integer"},{"type":"object","properties":{"k":{"const":"v"}},"required":["k"],"additionalProperties":false}]})",
          R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["b"]})",
          many,
          "{}",
          "true"}) {
    const json::value parsed = json::parse(schema);
    const JsonValidator validator(parsed);
    int whole = 0;
    for (int seed = 0; seed < 50; ++seed) {
      const Answer answer = served.post(
          kChat,
          fmt::format(
              R"({{"messages":[{{"role":"user","content":"hi"}}],"temperature":2,"max_tokens":60,"seed":{},"response_format":{{"type":"json_schema","json_schema":{{"name":"n","schema":{}}}}}}})",
              seed,
              schema));
      ASSERT_EQ(answer.status, 200) << schema << answer.body;
      if (answer.json().at("choices").at(0).at("finish_reason") == "stop") {
        ++whole;
        boost::system::error_code error;
        const json::value value = json::parse(text_of(answer), error);
        // "6e64919874354" is a number in JSON.
        EXPECT_TRUE(error == json::error::exponent_overflow || (!error && validator.fits(value)))
            << schema << text_of(answer);
      }
    }
    EXPECT_GT(whole, 0) << schema;
  }
}

// JSON-03: one tool of thirty that nothing fits is named.
TEST(Forms, AnImpossibleToolIsNamed) {
  Served served(serve_script(Script::tool, "T"));
  std::string tools;
  for (int i = 0; i < 30; ++i) {
    tools += fmt::format(
        R"({}{{"type":"function","function":{{"name":"{}","parameters":{{"type":"object","properties":{{"x":{{"type":"string"{}}}}},"required":["x"]}}}}}})",
        i == 0 ? "" : ",",
        i == 17 ? "the_odd_one" : fmt::format("f{}", i),
        i == 17 ? R"(,"minLength":5,"maxLength":2)" : "");
  }
  const auto ask = [&](const std::string& choice) {
    return served.post(
        kChat,
        fmt::format(
            R"({{"messages":[{{"role":"user","content":"hi"}}],"tool_choice":{},"tools":[{}]}})",
            choice,
            tools));
  };
  for (const char* choice :
       {"\"auto\"", "\"required\"", R"({"type":"function","function":{"name":"the_odd_one"}})"}) {
    const Answer answer = ask(choice);
    EXPECT_EQ(answer.status, 400) << choice << answer.body;
    EXPECT_THAT(answer.body, HasSubstr("the_odd_one")) << choice;
    EXPECT_EQ(answer.json().at("error").at("param"), "tools[17].function.parameters") << choice;
  }
  EXPECT_EQ(ask("\"none\"").status, 200);
  EXPECT_EQ(ask(R"({"type":"function","function":{"name":"f3"}})").status, 200);
}

// Unlimited white space is what some models end in: this one would write tabs without end.
TEST(Forms, ACallIsNotPutOffByWhiteSpace) {
  EngineOptions engine;
  engine.context_length = 4096;
  Served served(serve_script(Script::think, "K", engine));
  const Answer answer = served.post(
      kChat,
      R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":2000,"tool_choice":"required","tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"q":{"type":"string","maxLength":2}},"required":["q"],"additionalProperties":false}}}]})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const json::value choice = answer.json().at("choices").at(0);
  EXPECT_EQ(choice.at("finish_reason"), "tool_calls") << answer.body;
  EXPECT_EQ(choice.at("message").at("tool_calls").at(0).at("function").at("name"), "f");
}

// The tool model, but that it calls once more instead of ending, without end.
std::shared_ptr<server::ServedModel> serve_many_calls() {
  const std::string name = "T2";
  const std::filesystem::path folder =
      std::filesystem::path(script_folder(Script::tool, "T")).parent_path() / name;
  if (!std::filesystem::exists(folder)) {
    auto tensors = script_tensors(Script::tool);
    const auto last = static_cast<size_t>(script_id(Script::tool, tool_pieces().back()));
    const auto first = static_cast<size_t>(script_id(Script::tool, tool_pieces().front()));
    for (ScriptTensor& tensor : tensors) {
      if (tensor.name == "lm_head.weight") {
        tensor.values[kScriptEnd * kScriptVocabulary + last] = 0;
        tensor.values[first * kScriptVocabulary + last] = 4;
      }
    }
    write_script_model(folder, Script::tool, script_config(), tensors);
  }
  return serve_script(Script::tool, name);
}

// STR-01: two calls in one answer.
TEST(Calls, EachHasItsPlaceAndItsId) {
  Served served(serve_many_calls());
  const std::string ask =
      R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":26,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"q":{"type":"string"}},"required":["q"]}}}])";
  const json::value message =
      served.post(kChat, ask + "}").json().at("choices").at(0).at("message");
  const json::array& calls = message.at("tool_calls").as_array();
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_NE(calls[0].at("id"), calls[1].at("id"));
  const Answer answer = served.post(kChat, ask + R"(,"stream":true})");
  EXPECT_THAT(answer.body, testing::Not(HasSubstr("tool_call>")));
  std::vector<std::string> ids;
  std::vector<std::string> arguments;
  int roles = 0;
  for (const json::value& chunk : streamed(answer).chunks) {
    const json::object& delta = chunk.at("choices").at(0).at("delta").as_object();
    roles += delta.contains("role") ? 1 : 0;
    const json::value* list = delta.if_contains("tool_calls");
    for (const json::value& call : list != nullptr ? list->as_array() : json::array()) {
      if (call.as_object().contains("id")) {
        EXPECT_EQ(call.at("index").as_int64(), static_cast<int64_t>(ids.size()));
        EXPECT_EQ(call.at("type"), "function");
        EXPECT_EQ(call.at("function").at("name"), "f");
        ids.emplace_back(call.at("id").as_string());
        arguments.emplace_back();
      } else {
        EXPECT_EQ(call.at("index").as_int64(), static_cast<int64_t>(ids.size()) - 1);
        EXPECT_FALSE(call.at("function").as_object().contains("name"));
      }
      arguments.back() += std::string(call.at("function").at("arguments").as_string());
    }
  }
  EXPECT_EQ(roles, 1);
  ASSERT_EQ(ids.size(), 2u);
  EXPECT_NE(ids[0], ids[1]);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(json::parse(arguments[i]), json::parse("{\"q\":\"\xc3\xa9\"}"));
    EXPECT_EQ(calls[i].at("function").at("arguments"), arguments[i].c_str());
  }
  const json::value one = served.post(kChat, ask + R"(,"parallel_tool_calls":false})").json();
  EXPECT_EQ(one.at("choices").at(0).at("message").at("tool_calls").as_array().size(), 1u);
  EXPECT_EQ(one.at("choices").at(0).at("finish_reason"), "tool_calls");
}

}  // namespace

}  // namespace quince::test
