#include "chat/tool_text.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "cli/tiny_tokenizer.h"

namespace quince::test {

namespace {

namespace json = boost::json;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kChatml =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";
// Gemma's rules: no system message, user and assistant in turn.
constexpr const char* kStrict =
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('not in turn') }}{% endif %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
constexpr const char* kOwn =
    "{{ tools | tojson }}{% for m in messages %}{{ m.role }}: {{ m.content }}"
    "{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}\n{% endfor %}";
constexpr const char* kOnlyCalls =
    "{% for m in messages %}{{ m.role }}: {{ m.content }}"
    "{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}\n{% endfor %}";

ChatTemplate chat_template(std::string_view text) {
  return ChatTemplate(text, {}, "test");
}

TextSide side(std::string_view text) {
  TextSide side("test", tiny_tokenizer());
  side.template_text = text;
  side.chat_template.emplace(text, json::object(), "test");
  return side;
}

json::array array(std::string_view text) {
  return json::parse(text).as_array();
}

json::array tools() {
  return array(
      R"([{"type": "function", "function": {"name": "get_time", "parameters": {"type": "object"}}}])");
}

json::array history() {
  return array(R"([
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What time is it?"},
    {"role": "assistant", "content": "I look.", "tool_calls": [
      {"id": "1", "type": "function", "function": {"name": "get_time", "arguments": "{\"zone\": \"é\"}"}},
      {"id": "2", "type": "function", "function": {"name": "get_time", "arguments": {}}}]},
    {"role": "tool", "tool_call_id": "1", "content": "noon"},
    {"role": "tool", "tool_call_id": "2", "content": "night"},
    {"role": "user", "content": "So?"},
    {"role": "assistant", "content": "Noon."}])");
}

TEST(TemplateSkills, AreFoundByTrying) {
  const auto expect = [](std::string_view text, bool tools, bool calls, bool system) {
    const ChatTemplate tried = chat_template(text);
    EXPECT_EQ(tried.skills().tools, tools) << text;
    EXPECT_EQ(tried.skills().calls, calls) << text;
    EXPECT_EQ(tried.skills().system, system) << text;
  };
  expect(kChatml, false, false, true);
  expect(kStrict, false, false, false);
  expect(kOwn, true, true, true);
  expect(kOnlyCalls, false, true, true);
  expect("{{ raise_exception('never') }}", false, false, false);
  // The word alone is no skill.
  expect("{# tools #}{% if tools %}{{ messages[0].content }}{% endif %}", false, false, false);
}

TEST(ToolText, ToolsGoToTheSystemMessage) {
  json::array given = tools();
  const json::array messages = told_messages(side(kChatml), history(), given).value();
  EXPECT_TRUE(given.empty());
  ASSERT_EQ(messages.size(), 5u);
  const std::string system(messages[0].at("content").as_string());
  EXPECT_TRUE(system.starts_with("Be brief.\n\n")) << system;
  EXPECT_THAT(system, HasSubstr(R"({"name":"get_time","parameters":{"type":"object"}})"));
  EXPECT_THAT(system, HasSubstr("<tool_call>\n{\"name\": "));
  EXPECT_EQ(
      messages[2].at("content"),
      "I look.\n<tool_call>\n{\"name\": \"get_time\", \"arguments\": "
      "{\"zone\":\"é\"}}\n</tool_call>\n"
      "<tool_call>\n{\"name\": \"get_time\", \"arguments\": {}}\n</tool_call>");
  EXPECT_FALSE(messages[2].as_object().contains("tool_calls"));
  EXPECT_EQ(messages[3].at("role"), "user");
  EXPECT_EQ(
      messages[3].at("content"),
      "<tool_response>\nnoon\n</tool_response>\n<tool_response>\nnight\n</tool_response>\n\nSo?");
  EXPECT_EQ(messages[4].at("content"), "Noon.");
}

TEST(ToolText, WithoutASystemMessage) {
  const json::array hi = array(R"([{"role": "user", "content": "hi"}])");
  json::array given = tools();
  const json::array told = told_messages(side(kChatml), hi, given).value();
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].at("role"), "system");

  json::array messages = history();
  messages.erase(messages.begin());
  given = tools();
  const std::string prompt =
      chat_template(kStrict).render(told_messages(side(kStrict), messages, given).value());
  EXPECT_TRUE(prompt.starts_with("user: You can call")) << prompt;
  EXPECT_THAT(prompt, HasSubstr("\n\nWhat time is it?"));
}

TEST(ToolText, OnlyWhereItIsNeeded) {
  json::array none;
  for (const char* text : {kOwn, kOnlyCalls, kChatml}) {
    const json::array hi = array(R"([{"role": "user", "content": "hi"}])");
    EXPECT_FALSE(told_messages(side(text), hi, none)) << text;
  }
  json::array given = tools();
  EXPECT_FALSE(told_messages(side(kOwn), history(), given));
  EXPECT_EQ(given, tools());
  // Without tools, calls are left to a template that shows them, and only to that.
  EXPECT_FALSE(told_messages(side(kOnlyCalls), history(), none));
  EXPECT_THAT(
      json::serialize(told_messages(side(kChatml), history(), none).value()),
      Not(HasSubstr("tool_calls")));
}

TEST(ToolText, CallsAreNumbered) {
  json::array given = tools();
  const std::string kimi = std::string("{# <|tool_calls_section_begin|> #}") + kOwn;
  const json::array told = told_messages(side(kimi), history(), given).value();
  EXPECT_EQ(given, tools());
  EXPECT_EQ(told[2].at("tool_calls").at(0).at("id"), "functions.get_time:0");
  EXPECT_EQ(told[2].at("tool_calls").at(1).at("id"), "functions.get_time:1");
  EXPECT_EQ(told[3].at("tool_call_id"), "functions.get_time:0");
  EXPECT_EQ(told[4].at("tool_call_id"), "functions.get_time:1");
  EXPECT_EQ(told.size(), history().size());
}

TEST(ToolText, TheFormatIsWhatTheModelWasTold) {
  EXPECT_EQ(tool_format(side(kChatml)).name, "told");
  EXPECT_EQ(tool_format(side(kOwn)).name, "json");
  EXPECT_EQ(tool_format(side(std::string("{# <tool_call> #}") + kOwn)).name, "hermes");
  EXPECT_EQ(tool_format(side(std::string("{# <tool_call> #}") + kChatml)).name, "told");
  EXPECT_EQ(tool_format(side("<|channel|><|message|>")).name, "harmony");
}

// What the real templates can do.
TEST(TemplateSkills, OfModels) {
  const char* models = std::getenv("QUINCE_TEST_MODELS");
  const std::filesystem::path folder =
      std::filesystem::path(models != nullptr ? models : "") / "llama.cpp-models" / "templates";
  if (models == nullptr || !std::filesystem::exists(folder)) {
    GTEST_SKIP() << "the templates are not there (scripts/fetch-models)";
  }
  for (const auto& [file, tools, calls] : std::vector<std::tuple<std::string, bool, bool>>{
           {"Qwen-Qwen2.5-7B-Instruct", true, true},
           {"Qwen3-Coder", true, true},
           {"Qwen3.5-4B", true, true},
           {"meta-llama-Llama-3.1-8B-Instruct", true, true},
           {"mistralai-Mistral-Nemo-Instruct-2407", true, true},
           {"deepseek-ai-DeepSeek-V3.2", true, true},
           {"deepseek-ai-DeepSeek-V4", true, true},
           {"moonshotai-Kimi-K2", true, true},
           {"MiniMax-M2", true, true},
           {"LFM2.5-Instruct", true, false},
           {"GLM-4.6", true, true},
           {"openai-gpt-oss-120b", true, true},
           {"google-gemma-4-31B-it", true, true},
           {"HuggingFaceTB-SmolLM3-3B", false, false},
           {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", false, true},
           {"google-gemma-2-2b-it", false, false},
           {"microsoft-Phi-3.5-mini-instruct", false, false}}) {
    std::ifstream stream(folder / (file + ".jinja"));
    std::stringstream text;
    text << stream.rdbuf();
    ASSERT_FALSE(text.str().empty()) << file;
    const ChatTemplate tried(text.str(), {{"bos_token", "<s>"}, {"eos_token", "</s>"}}, "test");
    EXPECT_EQ(tried.skills().tools, tools) << file;
    EXPECT_EQ(tried.skills().calls, calls) << file;
  }
}

}  // namespace

}  // namespace quince::test
