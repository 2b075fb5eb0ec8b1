// Anthropic's API through a socket.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "server/served.h"

namespace quince::test {

namespace {

namespace json = boost::json;

constexpr const char* kRoute = "/v1/messages";

std::string message(const std::string& fields = "") {
  return R"({"model":"other-name","max_tokens":100,"messages":[{"role":"user","content":"hi"}])" +
         (fields.empty() ? "" : "," + fields) + "}";
}

// Types of the events, and their data.
std::vector<std::pair<std::string, json::value>> typed_events(const Answer& answer) {
  std::vector<std::pair<std::string, json::value>> out;
  for (const std::string& event : events(answer.body)) {
    json::value value = json::parse(event);
    out.emplace_back(std::string(value.at("type").as_string()), std::move(value));
    EXPECT_NE(answer.body.find("event: " + out.back().first + "\n"), std::string::npos);
  }
  return out;
}

class Messages : public ServedTest<Script::script> {};
class MessagesUsage : public ServedTest<Script::majority> {};

TEST_F(Messages, AWholeOne) {
  const Answer answer = served().post(kRoute, message(), "anthropic-version: 2023-06-01\r\n");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const json::value body = answer.json();
  EXPECT_EQ(body.at("type"), "message");
  EXPECT_EQ(body.at("role"), "assistant");
  EXPECT_EQ(body.at("content").at(0).at("type"), "text");
  EXPECT_EQ(body.at("content").at(0).at("text"), kScriptText);
  EXPECT_EQ(body.at("stop_reason"), "end_turn");
  EXPECT_EQ(body.at("usage").at("input_tokens"), 1);
  EXPECT_EQ(body.at("usage").at("output_tokens"), 11);
  EXPECT_EQ(
      served().post(kRoute, message(R"("stop_sequences":["fox"])")).json().at("stop_reason"),
      "stop_sequence");
  EXPECT_EQ(
      served().post(kRoute, message(R"("stop_sequences":["fox"])")).json().at("stop_sequence"),
      "fox");
}

TEST_F(Messages, AStream) {
  const auto list = typed_events(served().post(kRoute, message(R"("stream":true)")));
  ASSERT_GT(list.size(), 6u);
  EXPECT_EQ(list[0].first, "message_start");
  EXPECT_EQ(list[1].first, "content_block_start");
  std::string text;
  for (size_t i = 2; i + 3 < list.size(); ++i) {
    ASSERT_EQ(list[i].first, "content_block_delta");
    EXPECT_EQ(list[i].second.at("index"), 0);
    text += std::string(list[i].second.at("delta").at("text").as_string());
  }
  EXPECT_EQ(text, kScriptText);
  EXPECT_EQ(list[list.size() - 3].first, "content_block_stop");
  EXPECT_EQ(list[list.size() - 2].first, "message_delta");
  EXPECT_EQ(list[list.size() - 2].second.at("delta").at("stop_reason"), "end_turn");
  EXPECT_EQ(list[list.size() - 2].second.at("usage").at("output_tokens"), 11);
  EXPECT_EQ(list.back().first, "message_stop");
}

// What was computed before is no part of input_tokens, in a stream's beginning as at its end; the
// three are the whole prompt.
TEST_F(MessagesUsage, WhatWasComputedBefore) {
  const std::string body =
      R"({"max_tokens":3,"stream":true,"messages":[{"role":"user","content":")" +
      std::string(300, 'B') + R"("}]})";
  int64_t cached = 0;
  for (int i = 0; i < 2; ++i) {
    const auto list = typed_events(served().post(kRoute, body));
    ASSERT_EQ(list.front().first, "message_start");
    const json::value begin = list.front().second.at("message").at("usage");
    const json::value end = list.at(list.size() - 2).second.at("usage");
    cached = begin.at("cache_read_input_tokens").as_int64();
    EXPECT_EQ(begin.at("input_tokens").as_int64() + cached, 301);
    EXPECT_EQ(begin.at("cache_creation_input_tokens"), 0);
    EXPECT_EQ(begin.at("output_tokens"), 0);
    EXPECT_EQ(end.at("input_tokens"), begin.at("input_tokens"));
    EXPECT_EQ(end.at("cache_read_input_tokens"), cached);
  }
  EXPECT_GT(cached, 200);
}

TEST_F(MessagesUsage, CountsNoTextOfAnyLength) {
  const auto counted = [&](size_t size) {
    return served().post(
        "/v1/messages/count_tokens",
        R"({"messages":[{"role":"user","content":")" + std::string(size, 'B') + R"("}]})");
  };
  EXPECT_EQ(counted(2000).json().at("input_tokens"), 2001);  // more than the context has
  EXPECT_EQ(counted(size_t{5} << 20).status, 400);
}

TEST_F(Messages, ShapesAndErrors) {
  for (const char* fields :
       {R"("system":"be kind")",
        R"("system":[{"type":"text","text":"be kind","cache_control":{"type":"ephemeral"}}])",
        R"("metadata":{"user_id":"x"},"top_k":5,"thinking":{"type":"disabled"})"}) {
    EXPECT_EQ(served().post(kRoute, message(fields)).status, 200) << fields;
  }
  const Answer turns = served().post(
      kRoute,
      R"({"max_tokens":5,"messages":[{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"tool_use","id":"t","name":"f","input":{"a":1}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"r"}]}]},{"role":"system","content":"later"}]})");
  EXPECT_EQ(turns.status, 200) << turns.body;
  for (
      const char* body :
      {R"({"max_tokens":5})",
       R"({"messages":[{"role":"user","content":"x"}]})",
       R"({"max_tokens":0,"messages":[{"role":"user","content":"x"}]})",
       R"({"max_tokens":5,"messages":[]})",
       R"({"max_tokens":5,"messages":[{"role":"tool","content":"x"}]})",
       R"({"max_tokens":5,"messages":[{"role":"user","content":[{"type":"image"}]}]})",
       R"({"max_tokens":5,"messages":[{"role":"user","content":"x"}],"tool_choice":{"type":"x"}})"}) {
    const Answer answer = served().post(kRoute, body);
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_EQ(answer.json().at("type"), "error");
    EXPECT_EQ(answer.json().at("error").at("type"), "invalid_request_error");
  }
  EXPECT_EQ(served().post("/v1/messages/count_tokens", message()).json().at("input_tokens"), 1);
}

// In the two places where Anthropic's packages say it.
TEST_F(Messages, AreHeldToAForm) {
  const std::string form = R"({"type":"json_schema","schema":{"const":7}})";
  for (const std::string& fields :
       {R"("output_config":{"format":)" + form + R"(,"effort":"max"})",
        R"("output_format":)" + form}) {
    const json::value body = served().post(kRoute, message(fields)).json();
    EXPECT_EQ(body.at("content").at(0).at("text"), "7") << fields;
    EXPECT_EQ(body.at("stop_reason"), "end_turn") << fields;
  }
  for (const auto& [config, name] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"({"format":{"type":"text"}})", "output_config.format.type"},
           {R"({"format":{"type":"json_schema"}})", "output_config.format.schema"},
           {R"({"format":5})", "output_config.format"},
           {R"({"format":{"type":"json_schema","schema":{"type":"x"}}})", "output_config.format"},
           {R"({"effort":"some"})", "output_config.effort"}}) {
    const Answer answer =
        served().post(kRoute, message("\"output_config\":" + std::string(config)));
    EXPECT_EQ(answer.status, 400) << config;
    EXPECT_THAT(
        std::string(answer.json().at("error").at("message").as_string()), testing::HasSubstr(name));
  }
}

TEST(MessagesTools, BlocksOfToolsAndThinking) {
  const char* tools =
      R"("tools":[{"name":"f","description":"d","input_schema":{"type":"object","properties":{"q":{"type":"string"}}}}])";
  Served tool(serve_script(Script::tool, "T"));
  const std::string body =
      R"({"max_tokens":50,"messages":[{"role":"user","content":"x"}],)" + std::string(tools);
  const json::value whole = tool.post(kRoute, body + "}").json();
  EXPECT_EQ(whole.at("stop_reason"), "tool_use");
  ASSERT_EQ(whole.at("content").as_array().size(), 1u);
  EXPECT_EQ(whole.at("content").at(0).at("type"), "tool_use");
  EXPECT_EQ(whole.at("content").at(0).at("input"), json::parse("{\"q\":\"\xc3\xa9\"}"));
  std::string arguments;
  for (const auto& [type, event] : typed_events(tool.post(kRoute, body + R"(,"stream":true})"))) {
    if (type == "content_block_delta") {
      arguments += std::string(event.at("delta").at("partial_json").as_string());
    }
  }
  EXPECT_EQ(arguments, "{\"q\": \"\xc3\xa9\"}");
  Served think(serve_script(Script::think, "K"));
  const json::value thought = think.post(kRoute, message()).json();
  EXPECT_EQ(thought.at("content").at(0).at("thinking"), "x");
  EXPECT_EQ(thought.at("content").at(1).at("text"), "y");
}

}  // namespace

}  // namespace quince::test
