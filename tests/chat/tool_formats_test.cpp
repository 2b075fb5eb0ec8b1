// Tool calls as DeepSeek, GLM, Gemma and gpt-oss write them.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "chat/reading.h"

namespace quince::test {

namespace {

constexpr const char* kCalls = "<｜tool▁calls▁begin｜>";
constexpr const char* kCallsEnd = "<｜tool▁calls▁end｜>";
constexpr const char* kCall = "<｜tool▁call▁begin｜>";
constexpr const char* kCallEnd = "<｜tool▁call▁end｜>";
constexpr const char* kSep = "<｜tool▁sep｜>";

std::string deepseek_v3(const std::string& name, const std::string& arguments) {
  return std::string(kCall) + "function" + kSep + name + "\n```json\n" + arguments + "\n```" +
         kCallEnd;
}

std::string deepseek_v31(const std::string& name, const std::string& arguments) {
  return std::string(kCall) + name + kSep + arguments + kCallEnd;
}

TEST(DeepseekCalls, BothForms) {
  for (const auto& format : {"deepseek_v3", "deepseek_v31"}) {
    const auto reader = options(format);
    for (const auto& written : {deepseek_v3, deepseek_v31}) {
      expect(
          reader,
          "<think>hm</think>I look.\n\n" + std::string(kCalls) + written("f", R"({"q": "}\"é"})") +
              "\n" + written("get_weather", R"({"city": {"a": [1, 2]}})") + kCallsEnd,
          {"I look.",
           "hm",
           {{"f", R"({"q": "}\"é"})"}, {"get_weather", R"({"city": {"a": [1, 2]}})"}},
           2});
      // Some models leave out what stands around the calls.
      expect(reader, written("f", "{}"), {"", "", {{"f", "{}"}}, 1});
      // Cut off within the arguments.
      expect(
          reader,
          kCalls +
              written("f", R"({"q": "lo)")
                  .substr(0, written("f", R"({"q": "lo)").size() - std::string(kCallEnd).size()),
          {"", "", {{"f", written == deepseek_v3 ? "{\"q\": \"lo\n```" : R"({"q": "lo)"}}, 0});
    }
    expect(reader, "before " + std::string(kCalls), {"before"});
    // A tool without arguments, and text after the calls.
    expect(
        reader,
        std::string(kCalls) + kCall + "function" + kSep + "f" + kCallEnd + kCallsEnd + " done",
        {" done", "", {{"f", "{}"}}, 1});
  }
  // A tool that is called function.
  expect(
      options("deepseek_v31"),
      kCalls + deepseek_v31("function", "{\"a\": 1}") + kCallsEnd,
      {"", "", {{"function", "{\"a\": 1}"}}, 1});
}

AnswerReaderOptions glm() {
  AnswerReaderOptions reader = options("glm");
  reader.callable = boost::json::parse(
                        R"([{"type": "function", "function": {"name": "f", "parameters": {
                          "type": "object", "properties": {
                            "text": {"type": "string"}, "n": {"type": "integer"}}}}}])")
                        .as_array();
  return reader;
}

TEST(GlmCalls, ArgumentsAreJson) {
  expect(
      glm(),
      "<think>hm</think>I look.\n<tool_call>f\n<arg_key>text</arg_key>\n<arg_value>12 "
      "\"é\"\n<b></arg_value>\n<arg_key>n</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n"
      "<tool_call>get_weather<arg_key>city</arg_key><arg_value>[1, {\"a\": null}]</arg_value>"
      "<arg_key>day</arg_key><arg_value>next week</arg_value></tool_call>",
      {"I look.",
       "hm",
       {{"f", R"({"text": "12 \"é\"\n<b>", "n": 3})"},
        {"get_weather", R"({"city": [1,{"a":null}], "day": "next week"})"}},
       2});
  // A text that looks like a number is a text where the tool wants one.
  expect(
      glm(),
      "<tool_call>f<arg_key>text</arg_key><arg_value>12</arg_value></tool_call>",
      {"", "", {{"f", R"({"text": "12"})"}}, 1});
  expect(glm(), "<tool_call>f\n</tool_call>", {"", "", {{"f", "{}"}}, 1});
  expect(glm(), "<tool_call>f</tool_call> bye", {" bye", "", {{"f", "{}"}}, 1});
}

TEST(GlmCalls, WhatIsCutOffOrNoCall) {
  expect(
      glm(),
      "<tool_call>f<arg_key>text</arg_key><arg_value>lo</arg_val",
      {"", "", {{"f", R"({"text": "lo</arg_val)"}}, 0});
  expect(glm(), "<tool_call>f<arg_key>n</arg_key><arg_value>1", {"", "", {{"f", R"({"n": )"}}, 0});
  expect(glm(), "x <tool_call>f", {"x <tool_call>f"});
  expect(glm(), "x <tool_call>{\"a\": \"<\"}", {"x <tool_call>{\"a\": \"<\"}"});
  expect(glm(), "<tool_call></tool_call>", {"<tool_call></tool_call>"});
}

// Texts come as they are written, not at their end.
TEST(GlmCalls, TextsAreStreamed) {
  AnswerReader reader(glm());
  AnswerDelta delta;
  reader.add("<tool_call>f<arg_key>text</arg_key><arg_value>a long tex", delta);
  std::string arguments;
  for (const ToolCallDelta& call : delta.calls) {
    arguments += call.arguments;
  }
  EXPECT_EQ(arguments, "{\"text\": \"a long tex");
}

// Qwen3-Coder's form knows the tools too.
TEST(HermesCalls, TextsThatLookLikeNumbers) {
  auto reader = options("qwen_coder");
  reader.callable = glm().callable;
  expect(
      reader,
      "<tool_call>\n<function=f>\n<parameter=text>\n12\n</parameter>\n<parameter=n>\n3\n</"
      "parameter>\n"
      "</function>\n</tool_call>",
      {"", "", {{"f", R"({"text":"12","n":3})"}}, 1});
}

TEST(GemmaCalls, ArgumentsBecomeJson) {
  for (const auto& [format, begin, end, q] :
       {std::tuple<std::string, std::string, std::string, std::string>{
            "gemma", "<|tool_call>", "<tool_call|>", "<|\"|>"},
        {"function_gemma", "<start_function_call>", "<end_function_call>", "<escape>"}}) {
    const auto reader = options(format);
    expect(
        reader,
        "I look.\n" + begin + "call:f{city:" + q + "Zürich, \"x\" {a}\n" + q +
            ",n:3,list:[1,-2.5," + q + q + ",{deep:true}],none:null}" + end + begin +
            "call:get_weather{}" + end,
        {"I look.",
         "",
         {{"f",
           R"({"city": "Zürich, \"x\" {a}\n", "n": 3, "list": [1, -2.5E0, "", {"deep": true}], "none": null})"},
          {"get_weather", "{}"}},
         2});
    // Keys between quotes, values without: both have been seen.
    expect(
        reader,
        begin + "call:f{" + q + "a b" + q + ":Rome, \"c\" : \"d\\\\\",e:12:30}" + end,
        {"", "", {{"f", R"({"a b": "Rome", "c": "d\\\\", "e": "12:30"})"}}, 1});
    // Cut off.
    expect(reader, begin + "call:f{a:" + q + "lo", {"", "", {{"f", R"({"a": "lo)"}}, 0});
    expect(reader, "x " + begin + "call:f", {"x " + begin + "call:f"});
    expect(reader, begin + "hello" + end, {begin + "hello" + end});
    expect(reader, begin + "call:{}" + end, {begin + "call:{}" + end});
  }
}

TEST(GemmaCalls, Reasoning) {
  auto reader = options("gemma");
  reader.reasoning = reasoning_tags("... <|channel>thought ...");
  expect(
      reader,
      "<|channel>thought\nI think.\n<channel|><|tool_call>call:f{}<tool_call|>",
      {"", "I think.", {{"f", "{}"}}, 1});
}

TEST(HarmonyMessages, ChannelsAndCalls) {
  const auto reader = options("harmony");
  expect(
      reader,
      "<|channel|>analysis<|message|>I think.<|end|><|start|>assistant<|channel|>final<|message|>"
      "Hello <b>.<|return|>",
      {"Hello <b>.", "I think."});
  const Read call{"I look.", "Hm.\n\nYes.", {{"get_weather", R"({"city": "<|x", "n": {}})"}}, 1};
  expect(
      reader,
      "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>I "
      "look.<|end|><|start|>assistant<|channel|>analysis<|message|>Yes.<|end|><|start|>assistant"
      "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
      R"({"city": "<|x", "n": {}}<|call|>)",
      call);
  // As the template writes it: the recipient before the channel.
  expect(
      reader,
      " to=functions.f<|channel|>commentary json<|message|>{}<|call|>",
      {"", "", {{"f", "{}"}}, 1});
  // Messages that were not ended, and one that was cut off in its header.
  expect(
      reader,
      "<|channel|>analysis<|message|>a<|channel|>final<|message|>b<|start|>assistant<|channel|>fin",
      {"b", "a"});
  expect(reader, "<|channel|>analysis<|message|>cut o", {"", "cut o"});
  // Held to a form, it has no header.
  expect(reader, R"({"a": "<|end"})", {R"({"a": "<|end"})"});
}

// However it is cut, no header is ever shown.
TEST(HarmonyMessages, NothingOfHeadersIsShown) {
  const std::string text =
      "<|channel|>analysis<|message|>aaa<|end|><|start|>assistant<|channel|>commentary "
      "to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|><|start|>assistant<|channel|>"
      "final<|message|>bbb<|end|>";
  for (const bool tools : {true, false}) {
    for (size_t length = 0; length <= text.size(); ++length) {
      auto reader = options("harmony");
      reader.names.resize(tools ? reader.names.size() : 0);
      const Read out = read(reader, text.substr(0, length), {1});
      for (const std::string& shown : {out.content, out.reasoning}) {
        for (const char* piece : {"|", "channel", "analysis", "comment", "to=", "json", "start"}) {
          EXPECT_THAT(shown, testing::Not(testing::HasSubstr(piece))) << length;
        }
      }
    }
  }
}

TEST(HarmonyMessages, WithoutTools) {
  auto reader = options("harmony");
  reader.names.clear();
  expect(
      reader, "<|channel|>commentary to=functions.f<|message|>{\"a\": 1}<|call|>", {"{\"a\": 1}"});
  reader.split_reasoning = false;
  expect(
      reader,
      "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b",
      {"ab"});
}

TEST(HarmonyMessages, SaysWhenItReasons) {
  AnswerReader reader(options("harmony"));
  AnswerDelta delta;
  reader.add("<|channel|>analysis<|message|>a", delta);
  EXPECT_TRUE(reader.in_reasoning());
  reader.add("<|end|><|start|>assistant<|channel|>final<|message|>b", delta);
  EXPECT_FALSE(reader.in_reasoning());
}

}  // namespace

}  // namespace quince::test
