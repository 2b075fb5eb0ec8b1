// Tool calls and reasoning, through a socket.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "server/served.h"

namespace quince::test {

namespace {

namespace json = boost::json;
using testing::HasSubstr;

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kTools =
    R"("tools":[{"type":"web_search"},{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"q":{"type":"string","maxLength":2}},"required":["q"],"additionalProperties":false}}}])";

std::string chat(const std::string& fields) {
  return R"({"messages":[{"role":"user","content":"hi"}],)" + fields + "}";
}

class Tools : public testing::Test {
 protected:
  static Served& tool() {
    static Served served(serve_script(Script::tool, "T"));
    return served;
  }
  static Served& think() {
    static Served served(serve_script(Script::think, "K"));
    return served;
  }
};

struct Call {
  std::string id;
  std::string name;
  std::string arguments;
};

// Puts the calls of a stream together as clients do.
std::vector<Call> calls_of(const Streamed& stream) {
  std::vector<Call> calls;
  for (const json::value& chunk : stream.chunks) {
    for (const json::value& choice : chunk.at("choices").as_array()) {
      const auto* list = choice.at("delta").as_object().if_contains("tool_calls");
      for (const json::value& delta : list != nullptr ? list->as_array() : json::array()) {
        const auto index = static_cast<size_t>(delta.at("index").as_int64());
        const bool begins = delta.as_object().contains("id");
        EXPECT_EQ(begins, index == calls.size());
        calls.resize(std::max(calls.size(), index + 1));
        if (begins) {
          EXPECT_EQ(delta.at("type"), "function");
          calls[index].id = std::string(delta.at("id").as_string());
          calls[index].name = std::string(delta.at("function").at("name").as_string());
        }
        calls[index].arguments += std::string(delta.at("function").at("arguments").as_string());
      }
    }
  }
  return calls;
}

// STR-01.
TEST_F(Tools, ACall) {
  const Answer whole = tool().post(kChat, chat(kTools));
  ASSERT_EQ(whole.status, 200) << whole.body;
  const json::value choice = whole.json().at("choices").at(0);
  EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
  EXPECT_TRUE(choice.at("message").at("content").is_null());
  const json::value& call = choice.at("message").at("tool_calls").at(0);
  EXPECT_EQ(call.at("type"), "function");
  EXPECT_EQ(call.at("function").at("name"), "f");
  EXPECT_EQ(
      json::parse(call.at("function").at("arguments").as_string()),
      json::parse("{\"q\":\"\xc3\xa9\"}"));
  EXPECT_THAT(whole.body, testing::Not(HasSubstr("tool_call>")));

  const Answer answer = tool().post(kChat, chat(std::string(kTools) + R"(,"stream":true)"));
  EXPECT_THAT(answer.body, testing::Not(HasSubstr("tool_call>")));
  const Streamed stream = streamed(answer);
  const auto calls = calls_of(stream);
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].name, "f");
  EXPECT_EQ(calls[0].arguments, "{\"q\": \"\xc3\xa9\"}");
  EXPECT_THAT(calls[0].id, testing::StartsWith("call_"));
  EXPECT_EQ(stream.texts.at(0), "");
  EXPECT_EQ(stream.finish.at(0), std::vector<std::string>{"tool_calls"});
  // The arguments come in pieces.
  size_t pieces = 0;
  for (const json::value& chunk : stream.chunks) {
    pieces += json::serialize(chunk).find("arguments") != std::string::npos ? 1 : 0;
  }
  EXPECT_GE(pieces, 4u);
}

TEST_F(Tools, WithoutToolsOrWithNoneItIsText) {
  for (const std::string& fields :
       {std::string(R"("n":1)"), std::string(kTools) + R"(,"tool_choice":"none")"}) {
    const Answer answer = tool().post(kChat, chat(fields));
    EXPECT_EQ(
        text_of(answer),
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"q\": \"\xc3\xa9\"}}</tool_call>");
    EXPECT_EQ(answer.json().at("choices").at(0).at("finish_reason"), "stop");
  }
}

TEST_F(Tools, ACallThatIsCutOff) {
  const json::value choice = tool()
                                 .post(kChat, chat(std::string(kTools) + R"(,"max_tokens":8)"))
                                 .json()
                                 .at("choices")
                                 .at(0);
  EXPECT_EQ(choice.at("finish_reason"), "length");
  EXPECT_EQ(
      choice.at("message").at("tool_calls").at(0).at("function").at("arguments"), "{\"q\": \"");
  const json::value early = tool()
                                .post(kChat, chat(std::string(kTools) + R"(,"max_tokens":3)"))
                                .json()
                                .at("choices")
                                .at(0);
  EXPECT_EQ(early.at("finish_reason"), "length");
  EXPECT_EQ(early.at("message").at("content"), "<tool_call>{\"name\":");
  for (const auto& [stop, reason] :
       {std::pair{"q", "stop"}, std::pair{"</tool_call>", "tool_calls"}}) {
    const json::value stopped =
        tool()
            .post(kChat, chat(std::string(kTools) + R"(,"stop":")" + stop + "\""))
            .json()
            .at("choices")
            .at(0);
    EXPECT_EQ(stopped.at("finish_reason"), reason);
    EXPECT_EQ(stopped.at("message").at("tool_calls").as_array().size(), 1u);
  }
}

// A model that would write anything else is held to it.
TEST_F(Tools, RequiredAndNamed) {
  for (const char* choice : {R"("required")", R"({"type":"function","function":{"name":"f"}})"}) {
    for (const char* stream : {"", R"(,"stream":true)"}) {
      const Answer answer = think().post(
          kChat,
          chat(
              std::string(kTools) + R"(,"max_tokens":200,"temperature":0.5,"tool_choice":)" +
              choice + stream));
      ASSERT_EQ(answer.status, 200) << answer.body;
      std::string name;
      std::string arguments;
      std::string reason;
      if (*stream != '\0') {
        const Streamed streamed_answer = streamed(answer);
        const auto calls = calls_of(streamed_answer);
        ASSERT_EQ(calls.size(), 1u) << answer.body;
        name = calls[0].name;
        arguments = calls[0].arguments;
        reason = streamed_answer.finish.at(0).at(0);
      } else {
        const json::value body = answer.json().at("choices").at(0);
        const json::value& function = body.at("message").at("tool_calls").at(0).at("function");
        name = std::string(function.at("name").as_string());
        arguments = std::string(function.at("arguments").as_string());
        reason = std::string(body.at("finish_reason").as_string());
      }
      EXPECT_EQ(name, "f");
      EXPECT_EQ(reason, "tool_calls");
      EXPECT_TRUE(json::parse(arguments).at("q").is_string()) << arguments;
    }
  }
  for (
      const char* wrong :
      {R"("tool_choice":"required")",
       R"("tool_choice":"sometimes")",
       R"("tool_choice":5)",
       R"("tools":[{"type":"function"}])",
       R"("tools":[5])",
       R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"g"}})",
       R"("tools":[{"type":"function","function":{"name":"f","parameters":5}}])"}) {
    EXPECT_EQ(think().post(kChat, chat(wrong)).status, 400) << wrong;
  }
}

// A template that knows nothing of tools: they are told in words, and so are calls and results.
TEST(ToldTools, StandInTheSystemMessage) {
  auto model = serve_script(Script::tool, "T");
  model->text.template_text =
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{{ bos_token }}";
  model->text.chat_template.emplace(
      model->text.template_text, json::object{{"bos_token", "<s>"}}, "test");
  Served served(model);
  const auto prompt = [&](const std::string& fields) {
    return std::string(
        served.post("/apply-template", chat(fields)).json().at("prompt").as_string());
  };
  const std::string told = prompt(kTools);
  EXPECT_THAT(told, HasSubstr("[system]You can call these functions:\n<tools>\n{\"name\":\"f\""));
  EXPECT_TRUE(told.ends_with("[user]hi<s>")) << told;
  EXPECT_EQ(prompt(std::string(kTools) + R"(,"tool_choice":"none")"), "[user]hi<s>");
  EXPECT_EQ(prompt(R"("tools":[])"), "[user]hi<s>");
  // Every API, and the next turn of a stored response is told once.
  const std::string tool = R"("tools":[{"type":"function","name":"f","parameters":{}}])";
  const json::value first = served.post("/v1/responses", R"({"input":"hi",)" + tool + "}").json();
  const json::value next = served
                               .post(
                                   "/v1/responses",
                                   R"({"input":"hi",)" + tool + R"(,"previous_response_id":)" +
                                       json::serialize(first.at("id")) + "}")
                               .json();
  EXPECT_EQ(first.at("output").at(0).at("type"), "function_call");
  EXPECT_LT(
      next.at("usage").at("input_tokens").as_int64(),
      2 * first.at("usage").at("input_tokens").as_int64());
  const std::string messages =
      R"({"max_tokens":9,"messages":[{"role":"user","content":"hi"}],"tools":[{"name":"f","input_schema":{"type":"object"}}]})";
  EXPECT_GT(
      served.post("/v1/messages/count_tokens", messages).json().at("input_tokens").as_int64(), 100);
}

// As Pydantic and Zod write nested models: the schema refers to its own definitions.
TEST_F(Tools, DefinitionsOfASchemaAreFound) {
  const Answer answer = think().post(
      kChat,
      chat(
          R"("max_tokens":200,"temperature":0.5,"tool_choice":"required","tools":[{"type":"function","function":{"name":"g","parameters":{"$defs":{"Item":{"type":"object","properties":{"n":{"type":"integer","maximum":9}},"required":["n"],"additionalProperties":false}},"type":"object","properties":{"item":{"$ref":"#/$defs/Item"}},"required":["item"],"additionalProperties":false}}}])"));
  ASSERT_EQ(answer.status, 200) << answer.body;
  ASSERT_THAT(answer.body, HasSubstr("tool_calls\":["));
  const json::value call =
      answer.json().at("choices").at(0).at("message").at("tool_calls").at(0).at("function");
  const json::value arguments = json::parse(std::string(call.at("arguments").as_string()));
  EXPECT_TRUE(arguments.at("item").at("n").is_int64()) << call;
}

// JSON-03: an impossible tool is refused.
TEST_F(Tools, AnImpossibleTool) {
  const Answer answer = tool().post(
      kChat,
      chat(
          R"("tool_choice":"required","tools":[{"type":"function","function":{"name":"g","parameters":{"type":"object","properties":{"x":{"type":"string","minLength":5,"maxLength":2}},"required":["x"]}}}])"));
  EXPECT_EQ(answer.status, 400) << answer.body;
}

json::value error_of(const Answer& answer) {
  EXPECT_EQ(answer.status, 400) << answer.body;
  return answer.status == 400 ? answer.json().at("error")
                              : json::value{{"message", ""}, {"param", ""}};
}

// Whoever sends several is told which one, and not in the words of a grammar of ours.
TEST_F(Tools, AnImpossibleToolAmongOthers) {
  const std::string good =
      R"({"type":"function","function":{"name":"g","parameters":{"type":"object"}}})";
  const std::string service = R"({"type":"web_search"})";
  const auto bad = [](const std::string& fields, const std::string& schema) {
    return R"({"type":"function","function":{"name":"h",)" + fields +
           R"("parameters":{"type":"object","properties":{"x":)" + schema +
           R"(},"required":["x"]}}})";
  };
  for (const std::string schema :
       {R"({"type":"string","minLength":5,"maxLength":2})",
        R"({"type":"string","pattern":"a(?=b)c"})",
        R"({"type":"array","uniqueItems":true})",
        R"({"type":"string","format":"colour"})"}) {
    for (const std::string choice :
         {R"("required")", R"({"type":"function","function":{"name":"h"}})"}) {
      const json::value error = error_of(tool().post(
          kChat,
          chat(
              R"("tools":[)" + service + "," + good + "," + bad("", schema) +
              R"(],"tool_choice":)" + choice)));
      EXPECT_EQ(error.at("param"), "tools[2].function.parameters") << schema;
      const std::string message(error.at("message").as_string());
      EXPECT_THAT(message, HasSubstr("'h'"));
      EXPECT_THAT(message, testing::Not(HasSubstr("Lark")));
      EXPECT_THAT(message, testing::Not(HasSubstr("start:")));
    }
    // Nobody is held to it, but who says so of the tool; what excludes itself is an error anyhow.
    const auto automatic = [&](const std::string& strict) {
      return tool().post(kChat, chat(R"("tools":[)" + good + "," + bad(strict, schema) + "]"));
    };
    const bool excludes = schema.find("minLength") != std::string::npos;
    EXPECT_EQ(automatic("").status, excludes ? 400 : 200);
    EXPECT_EQ(error_of(automatic(R"("strict":true,)")).at("param"), "tools[1].function.parameters");
  }
  const std::string flat =
      R"("tools":[{"type":"web_search"},{"type":"function","name":"h","parameters":{"type":"object","properties":{"x":false},"required":["x"]}}],"tool_choice":"required")";
  EXPECT_EQ(
      error_of(tool().post("/v1/responses", R"({"input":"x",)" + flat + "}")).at("param"),
      "tools[1].parameters");
  const Answer message = tool().post(
      "/v1/messages",
      R"({"max_tokens":5,"messages":[{"role":"user","content":"x"}],"tool_choice":{"type":"any"},"tools":[{"name":"h","input_schema":{"type":"object","properties":{"x":false},"required":["x"]}}]})");
  EXPECT_EQ(message.status, 400);
  EXPECT_THAT(message.body, HasSubstr("tools[0].input_schema"));
}

TEST_F(Tools, ArgumentsAreAnObject) {
  for (const char* type : {R"("string")", R"(["array","null"])", "5"}) {
    const std::string schema = std::string(R"({"type":)") + type + "}";
    const json::value error = error_of(tool().post(
        kChat,
        chat(
            R"("tools":[{"type":"function","function":{"name":"f","parameters":)" + schema +
            "}}]")));
    EXPECT_EQ(error.at("param"), "tools[0].function.parameters.type");
    EXPECT_THAT(error.at("message").as_string().c_str(), HasSubstr("object"));
    EXPECT_EQ(
        error_of(tool().post(
                     "/v1/responses",
                     R"({"input":"x","tools":[{"type":"function","name":"f","parameters":)" +
                         schema + "}]}"))
            .at("param"),
        "tools[0].parameters.type");
    EXPECT_THAT(
        tool()
            .post(
                "/v1/messages",
                R"({"max_tokens":5,"messages":[{"role":"user","content":"x"}],"tools":[{"name":"f","input_schema":)" +
                    schema + "}]}")
            .body,
        HasSubstr("tools[0].input_schema.type"));
  }
}

TEST_F(Tools, ChoicesThatSayNothing) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{}", "tool_choice.function.name"},
      {"[]", "tool_choice"},
      {"true", "tool_choice"},
      {R"("")", "tool_choice"},
      {R"({"type":5})", "tool_choice.type"},
      {R"({"type":"web_search"})", "tool_choice.type"},
      {R"({"type":"function"})", "tool_choice.function.name"},
      {R"({"type":"function","function":{}})", "tool_choice.function.name"},
      {R"({"type":"function","function":"f"})", "tool_choice.function"},
      {R"({"type":"function","function":{"name":7}})", "tool_choice.function.name"},
      {R"({"type":"function","name":7})", "tool_choice.name"},
      {R"({"type":"function","function":{"name":"other"}})", "tool_choice"},
      {R"({"type":"allowed_tools"})", "tool_choice.tools"},
      {R"({"type":"allowed_tools","tools":[{}]})", "tool_choice.tools[0].function.name"},
      {R"({"type":"allowed_tools","mode":"none","tools":[{"type":"function","function":{"name":"f"}}]})",
       "tool_choice.mode"}};
  for (const auto& [choice, field] : cases) {
    const json::value error =
        error_of(tool().post(kChat, chat(std::string(kTools) + R"(,"tool_choice":)" + choice)));
    EXPECT_EQ(error.at("param"), json::string(field)) << choice;
    EXPECT_THAT(std::string(error.at("message").as_string()), HasSubstr(field)) << choice;
  }
  EXPECT_EQ(
      error_of(tool().post(
                   "/v1/responses",
                   R"({"input":"x","tools":[{"type":"function","name":"f"}],"tool_choice":{}})"))
          .at("param"),
      "tool_choice.name");
  for (const auto& [choice, field] :
       {std::pair{"{}", "tool_choice.type"},
        std::pair{R"({"type":"tool"})", "tool_choice.name"},
        std::pair{R"({"type":"some"})", "tool_choice.type"},
        std::pair{"5", "tool_choice"}}) {
    const Answer answer = tool().post(
        "/v1/messages",
        std::string(
            R"({"max_tokens":5,"messages":[{"role":"user","content":"x"}],"tools":[{"name":"f"}],"tool_choice":)") +
            choice + "}");
    EXPECT_EQ(answer.status, 400) << choice;
    EXPECT_THAT(answer.body, HasSubstr(field)) << choice;
  }
}

TEST_F(Tools, Reasoning) {
  const json::value whole = think().post(kChat, chat(R"("n":1)")).json();
  const json::value& message = whole.at("choices").at(0).at("message");
  EXPECT_EQ(message.at("content"), "y");
  EXPECT_EQ(message.at("reasoning_content"), "x");
  EXPECT_EQ(message.at("reasoning"), "x");
  EXPECT_GE(whole.at("usage").at("completion_tokens_details").at("reasoning_tokens").as_int64(), 1);
  std::string reasoning;
  std::string both;
  const Streamed stream = streamed(think().post(kChat, chat(R"("stream":true)")));
  for (const json::value& chunk : stream.chunks) {
    const json::object& delta = chunk.at("choices").at(0).at("delta").as_object();
    if (delta.contains("reasoning_content")) {
      reasoning += std::string(delta.at("reasoning_content").as_string());
      both += std::string(delta.at("reasoning").as_string());
    }
  }
  EXPECT_EQ(reasoning, "x");
  EXPECT_EQ(both, "x");
  EXPECT_EQ(stream.texts.at(0), "y");
  EXPECT_EQ(
      text_of(think().post(kChat, chat(R"("reasoning_format":"none")"))), "<think> x</think> y");
}

}  // namespace

}  // namespace quince::test
