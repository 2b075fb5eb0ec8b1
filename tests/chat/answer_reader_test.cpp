#include "chat/answer_reader.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "chat/reading.h"

namespace quince::test {

namespace {

TEST(AnswerReader, PlainText) {
  for (const char* format :
       {"hermes",
        "llama3",
        "mistral",
        "json",
        "deepseek_v3",
        "deepseek_v31",
        "deepseek_v32",
        "deepseek_v4",
        "kimi",
        "minimax",
        "lfm",
        "qwen_coder",
        "told",
        "glm",
        "gemma",
        "function_gemma",
        "harmony",
        ""}) {
    for (const char* text :
         {"hello",
          "a < b",
          "x <tool",
          " [TOOL",
          "{",
          "{\"a\": 1}",
          "  {\"name\": 5}",
          "[1, 2]",
          "<thin",
          ""}) {
      expect(options(format), text, {.content = text});
    }
  }
}

TEST(AnswerReader, Reasoning) {
  const auto plain = options("");
  expect(plain, "<think>\nfirst\n\nthen\n</think>\n\nanswer", {"answer", "first\n\nthen"});
  expect(plain, "\n<think> x</think> y", {"y", "x"});
  expect(plain, "<think></think>answer", {"answer", ""});
  expect(plain, "<think>cut off </thi", {"", "cut off </thi"});
  expect(plain, "answer <think>x</think>", {"answer <think>x</think>", ""});
  auto inside = plain;
  inside.begins_in_reasoning = true;
  expect(inside, "first</think>answer", {"answer", "first"});
  expect(inside, "never ends", {"", "never ends"});
  expect(options("", false), "<think>x</think>y", {"<think>x</think>y", ""});
  auto mistral = plain;
  mistral.reasoning = reasoning_tags("... [THINK] ...");
  expect(mistral, "[THINK]a[/THINK]b", {"b", "a"});
}

TEST(AnswerReader, Hermes) {
  const auto hermes = options("hermes");
  expect(
      hermes,
      "<tool_call>{\"name\": \"f\", \"arguments\": {\"q\": \"\xc3\xa9\"}}</tool_call>",
      {"", "", {{"f", "{\"q\": \"\xc3\xa9\"}"}}, 1});
  expect(
      hermes,
      "<think>hm</think>I look.\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": "
      "{}}\n</tool_call>\n"
      "<tool_call>\n{\"arguments\": {\"a\": [1, {\"b\": \"}\\\"\"}], \"c\": null}, \"name\": "
      "\"g\"}\n</tool_call>",
      {"I look.", "hm", {{"f", "{}"}, {"g", R"({"a": [1, {"b": "}\""}], "c": null})"}}, 2});
  expect(hermes, R"(<tool_call>{"name": "f"}</tool_call>)", {"", "", {{"f", "{}"}}, 1});
  expect(
      hermes,
      R"(<tool_call>{"name": "f", "arguments": "{\"a\": 1}"}</tool_call>)",
      {"", "", {{"f", R"({"a": 1})"}}, 1});
  expect(
      hermes,
      "<tool_call><function=></function></tool_call>",
      {"<tool_call><function=></function></tool_call>"});
  // The first of two counts.
  expect(
      hermes,
      R"(<tool_call>{"name": "f": "x", "name": "g", "arguments": {"a": 1}, "parameters": {"b": 2}}</tool_call>)",
      {"", "", {{"f", R"({"a": 1})"}}, 1});
  // Cut off: a call that has begun stays begun, one that has not is text.
  expect(
      hermes,
      R"(<tool_call>{"name": "f", "arguments": {"q": "lo)",
      {"", "", {{"f", R"({"q": "lo)"}}, 0});
  expect(hermes, "<tool_call>{\"na", {"<tool_call>{\"na", "", {}, 0});
  expect(
      hermes,
      "text <tool_call>no JSON</tool_call>",
      {"text <tool_call>no JSON</tool_call>", "", {}, 0});
  expect(
      hermes,
      "<tool_call>\n<function=f>\n<parameter=q>\na "
      "b\n</parameter>\n<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>",
      {"", "", {{"f", R"({"q":"a b","n":3})"}}, 1});
}

TEST(AnswerReader, Llama) {
  const auto llama = options("llama3");
  expect(
      llama,
      R"({"name": "get_weather", "parameters": {"city": "Zürich", "n": 2}})",
      {"", "", {{"get_weather", R"({"city": "Zürich", "n": 2})"}}, 1});
  expect(
      llama,
      R"(<|python_tag|>{"name": "f", "parameters": {}}; {"name": "f", "parameters": {"a": 1}})",
      {"", "", {{"f", "{}"}, {"f", R"({"a": 1})"}}, 2});
  // An object that is no call, and one of a tool that there is not.
  expect(
      llama, R"({"name": "other", "parameters": {}})", {R"({"name": "other", "parameters": {}})"});
  expect(
      llama, R"(Use {"name": "f", "parameters": {}})", {R"(Use {"name": "f", "parameters": {}})"});
  expect(llama, R"({"name": "f", "parameters": {"a)", {"", "", {{"f", R"({"a)"}}, 0});
}

TEST(AnswerReader, Mistral) {
  const auto mistral = options("mistral");
  expect(
      mistral,
      R"([TOOL_CALLS][{"name": "f", "arguments": {"a": 1}, "id": "123456789"}, {"name": "g", "arguments": {}}])",
      {"", "", {{"f", R"({"a": 1})"}, {"g", "{}"}}, 2});
  expect(
      mistral,
      R"(Let me see.[TOOL_CALLS]f[ARGS]{"a": "]}"}[TOOL_CALLS]g[ARGS]{})",
      {"Let me see.", "", {{"f", R"({"a": "]}"})"}, {"g", "{}"}}, 2});
  expect(
      mistral, R"([TOOL_CALLS] [{"name": "f", "arguments": {"a")", {"", "", {{"f", R"({"a")"}}, 0});
}

TEST(AnswerReader, FormatsAreKnownByTheTemplate) {
  EXPECT_EQ(tool_format("x <tool_call> y").name, "hermes");
  EXPECT_EQ(tool_format("x [TOOL_CALLS] y").name, "mistral");
  EXPECT_EQ(tool_format("x <|python_tag|> y").name, "llama3");
  EXPECT_EQ(tool_format("x").name, "json");
  EXPECT_EQ(told_format().name, "told");
  const char* models = std::getenv("QUINCE_TEST_MODELS");
  const std::filesystem::path folder =
      std::filesystem::path(models != nullptr ? models : "") / "llama.cpp-models" / "templates";
  if (models == nullptr || !std::filesystem::exists(folder)) {
    GTEST_SKIP() << "the templates are not there (scripts/fetch-models)";
  }
  for (const auto& [file, format] : std::vector<std::pair<std::string, std::string>>{
           {"Qwen-Qwen2.5-7B-Instruct", "hermes"},
           {"Qwen-Qwen3-0.6B", "hermes"},
           {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "hermes"},
           {"Qwen3-Coder", "qwen_coder"},
           {"Qwen3.5-4B", "qwen_coder"},
           {"meta-llama-Llama-3.1-8B-Instruct", "llama3"},
           {"meta-llama-Llama-3.2-3B-Instruct", "llama3"},
           {"meta-llama-Llama-3.3-70B-Instruct", "llama3"},
           {"mistralai-Mistral-Nemo-Instruct-2407", "mistral"},
           {"Mistral-Small-3.2-24B-Instruct-2506", "mistral"},
           {"llama-cpp-deepseek-r1", "deepseek_v3"},
           {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek_v3"},
           {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "deepseek_v3"},
           {"deepseek-ai-DeepSeek-V3.1", "deepseek_v31"},
           {"deepseek-ai-DeepSeek-V3.2", "deepseek_v32"},
           {"deepseek-ai-DeepSeek-V4", "deepseek_v4"},
           {"deepseek-ai-DeepSeek-V4-Flash-0731", "deepseek_v4"},
           {"moonshotai-Kimi-K2", "kimi"},
           {"Kimi-K2-Instruct", "kimi"},
           {"Kimi-K2-Thinking", "kimi"},
           {"MiniMax-M2", "minimax"},
           {"LFM2-8B-A1B", "lfm"},
           {"LFM2.5-8B-A1B", "lfm"},
           {"LFM2.5-Instruct", "lfm"},
           {"openai-gpt-oss-120b", "harmony"},
           {"GLM-4.6", "glm"},
           {"GLM-4.7-Flash", "glm"},
           {"google-gemma-4-31B-it", "gemma"},
           {"google-gemma-2-2b-it", "json"}}) {
    std::ifstream stream(folder / (file + ".jinja"));
    std::stringstream text;
    text << stream.rdbuf();
    ASSERT_FALSE(text.str().empty()) << file;
    EXPECT_EQ(tool_format(text.str()).name, format) << file;
  }
}

// In whatever pieces it comes: where in the text each call stands.
TEST(AnswerReader, CallsHaveTheirPlaceInTheText) {
  const std::string call = R"(<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>)";
  const std::string text = "x" + call + "y" + call + call + "z";
  for (size_t size = 1; size <= text.size(); ++size) {
    AnswerReader reader(options("hermes", false));
    std::string written;  // calls as their names and arguments
    const auto take = [&](const AnswerDelta& delta) {
      size_t shown = 0;
      for (const ToolCallDelta& part : delta.calls) {
        written += delta.content.substr(shown, part.at - shown) + part.name + part.arguments;
        shown = part.at;
      }
      written += delta.content.substr(shown);
    };
    for (size_t at = 0; at < text.size(); at += size) {
      AnswerDelta delta;
      reader.add(std::string_view(text).substr(at, size), delta);
      take(delta);
    }
    AnswerDelta delta;
    reader.finish(delta);
    take(delta);
    EXPECT_EQ(written, R"(xf{"a": 1}yf{"a": 1}f{"a": 1}z)") << size;
  }
}

}  // namespace

}  // namespace quince::test
