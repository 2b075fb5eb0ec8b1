// How long models may think, and in which ways of writing they call tools, through a socket.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "chat/tool_text.h"
#include "server/served.h"

namespace quince::test {

namespace {

namespace json = boost::json;
using testing::HasSubstr;

constexpr const char* kChat = "/v1/chat/completions";

std::string chat(const std::string& fields) {
  return R"({"messages":[{"role":"user","content":"hi"}])" + (fields.empty() ? "" : "," + fields) +
         "}";
}

class Budget : public testing::Test {
 protected:
  static Served& think() {
    static Served served(serve_script(Script::think, "K"));
    return served;
  }
  static json::value message(const Answer& answer) {
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json().at("choices").at(0).at("message");
  }
};

// The model writes "<think> x</think> y"; after what was put there it knows nothing more.
TEST_F(Budget, InTokens) {
  for (const std::string& field :
       {R"("reasoning_budget":)", R"("thinking_budget_tokens":)", R"("thinking_token_budget":)"}) {
    const json::value cut = message(think().post(kChat, chat(field + "1")));
    EXPECT_EQ(cut.at("reasoning_content"), "x");
    EXPECT_EQ(cut.at("content"), "");
    const json::value whole = message(think().post(kChat, chat(field + "20")));
    EXPECT_EQ(whole.at("reasoning_content"), "x");
    EXPECT_EQ(whole.at("content"), "y");
  }
  const json::value none = message(think().post(kChat, chat(R"("reasoning_budget":0)")));
  EXPECT_FALSE(none.as_object().contains("reasoning_content"));
  EXPECT_EQ(none.at("content"), "");
  const json::value routed =
      message(think().post(kChat, chat(R"("reasoning":{"max_tokens":1,"effort":"high"})")));
  EXPECT_EQ(routed.at("content"), "");
}

TEST_F(Budget, AsAnthropicAsksForIt) {
  const std::string body =
      R"({"max_tokens":50,"messages":[{"role":"user","content":"hi"}],"thinking":{"type":"enabled","budget_tokens":)";
  const json::value cut = think().post("/v1/messages", body + "1}}").json();
  ASSERT_EQ(cut.at("content").as_array().size(), 2u) << json::serialize(cut);
  EXPECT_EQ(cut.at("content").at(0).at("thinking"), "x");
  EXPECT_EQ(cut.at("content").at(1).at("text"), "");
  const json::value whole = think().post("/v1/messages", body + "1024}}").json();
  EXPECT_EQ(whole.at("content").at(1).at("text"), "y");
  EXPECT_EQ(think().post("/v1/messages", body + "-4}}").status, 400);
}

TEST_F(Budget, OfTheServer) {
  auto model = serve_script(Script::think, "K");
  model->reasoning_budget = 1;
  Served served(model);
  EXPECT_EQ(message(served.post(kChat, chat(""))).at("content"), "");
  EXPECT_EQ(message(served.post(kChat, chat(R"("reasoning_budget":-1)"))).at("content"), "y");
}

TEST_F(Budget, WhatCannotBe) {
  for (const std::string& value : {"-2", "1.5", "\"much\"", "true"}) {
    const Answer answer = think().post(kChat, chat("\"reasoning_budget\":" + value));
    EXPECT_EQ(answer.status, 400) << value;
    EXPECT_EQ(answer.json().at("error").at("param"), "reasoning_budget");
  }
}

// The template is told how much to think.
TEST(Effort, ReachesTheTemplate) {
  auto model = serve_script(Script::script, "S");
  model->text.chat_template.emplace(
      "{{ reasoning_effort }} {{ enable_thinking }}", json::object(), "test");
  Served served(model);
  const auto rendered = [&](const std::string& fields) {
    return std::string(
        served.post("/apply-template", chat(fields)).json().at("prompt").as_string());
  };
  EXPECT_EQ(rendered(R"("reasoning_effort":"low")"), "low ");
  EXPECT_EQ(rendered(R"("reasoning_effort":"none")"), "none False");
  EXPECT_EQ(rendered(R"("reasoning":{"effort":"high"})"), "high ");
  EXPECT_EQ(rendered(R"("reasoning_budget":0)"), " False");
  EXPECT_EQ(
      rendered(R"("reasoning_budget":0,"chat_template_kwargs":{"enable_thinking":true})"), " True");
}

// The model knows nothing of calls: what a form leaves open is drawn. Every way of writing: what
// the grammar of a required call lets through is read as that call, whole and streamed.
TEST(ToolFormats, ARequiredCallIsWrittenAndRead) {
  const std::pair<std::string, std::string> templates[] = {
      {"[TOOL_CALLS]", "mistral"},
      {"<|channel|><|message|>", "harmony"},
      {"<｜tool▁call▁begin｜>```json", "deepseek_v3"},
      {"<｜tool▁call▁begin｜>", "deepseek_v31"},
      {"<tool_call><arg_key>", "glm"},
      {"｜DSML｜function_calls>", "deepseek_v32"},
      {"｜DSML｜tool_calls>", "deepseek_v4"},
      {"<|tool_calls_section_begin|>", "kimi"},
      {"<minimax:tool_call>", "minimax"},
      {"<|tool_call_start|>", "lfm"},
      {"<tool_call><function=", "qwen_coder"},
      {"<tool_call>", "hermes"},
      {"", "told"},
      {"<|tool_call>call:", "gemma"},
      {"<start_function_call>", "function_gemma"},
      {"<|python_tag|>", "llama3"},
      {"", "json"}};
  const std::string tools =
      R"("tool_choice":"required","parallel_tool_calls":false,"max_tokens":480,"temperature":1,"seed":3,"top_k":0,"top_p":1,"min_p":0,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"kind":{"type":"string","enum":["red"]},"n":{"type":"integer","minimum":7,"maximum":7},"on":{"type":"boolean"}},"required":["kind","n","on"],"additionalProperties":false}}}])";
  for (const auto& [text, format] : templates) {
    auto model = serve_script(Script::script, "S");
    model->text.template_text = text;
    if (format != "told") {  // the template speaks of tools
      model->text.chat_template.emplace(
          "{{ bos_token }}{% for t in tools %}{{ t.function.name }}{% endfor %}",
          json::object{{"bos_token", "<s>"}},
          "test");
    }
    ASSERT_EQ(tool_format(model->text).name, format);
    Served served(model);
    const Answer answer = served.post(kChat, chat(tools));
    ASSERT_EQ(answer.status, 200) << format << answer.body;
    const json::value choice = answer.json().at("choices").at(0);
    ASSERT_TRUE(choice.at("message").as_object().contains("tool_calls")) << format << answer.body;
    EXPECT_EQ(choice.at("finish_reason"), "tool_calls") << format;
    EXPECT_TRUE(choice.at("message").at("content").is_null()) << format << answer.body;
    const json::value& function = choice.at("message").at("tool_calls").at(0).at("function");
    EXPECT_EQ(function.at("name"), "f");
    const std::string arguments(function.at("arguments").as_string());
    boost::system::error_code error;
    const json::value parsed = json::parse(arguments, error);
    ASSERT_FALSE(error) << format << " " << arguments;
    EXPECT_EQ(parsed.at("kind"), "red") << format << " " << arguments;
    EXPECT_TRUE(parsed.at("n").is_int64()) << format << " " << arguments;
    EXPECT_TRUE(parsed.at("on").is_bool()) << format << " " << arguments;

    std::string streamed_arguments;
    for (const json::value& chunk :
         streamed(served.post(kChat, chat(tools + R"(,"stream":true)"))).chunks) {
      for (const json::value& one : chunk.at("choices").as_array()) {
        const auto* list = one.at("delta").as_object().if_contains("tool_calls");
        for (const json::value& delta : list != nullptr ? list->as_array() : json::array()) {
          streamed_arguments += delta.at("function").at("arguments").as_string();
        }
      }
    }
    EXPECT_EQ(streamed_arguments, arguments) << format;
  }
}

}  // namespace

}  // namespace quince::test
