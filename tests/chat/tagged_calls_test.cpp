// Tool calls as Qwen3-Coder, DeepSeek V3.2 and V4, MiniMax, Kimi and LFM2 write them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "chat/reading.h"

namespace quince::test {

namespace {

namespace json = boost::json;

AnswerReaderOptions with_tools(std::string_view format) {
  AnswerReaderOptions reader = options(format);
  reader.callable = json::parse(
                        R"([{"type": "function", "function": {"name": "f", "parameters": {
                          "type": "object", "properties": {
                            "text": {"type": "string"}, "n": {"type": "integer"}}}}}])")
                        .as_array();
  return reader;
}

std::string streamed(const AnswerReaderOptions& options, std::string_view text) {
  AnswerReader reader(options);
  AnswerDelta delta;
  reader.add(text, delta);
  std::string arguments;
  for (const ToolCallDelta& call : delta.calls) {
    arguments += call.arguments;
  }
  return arguments;
}

// The text of one call with these arguments, each {key, value, is_text}, in each form.
using Arguments = std::vector<std::tuple<std::string, std::string, bool>>;

std::string coder(const std::string& name, const Arguments& arguments) {
  std::string out = "<tool_call>\n<function=" + name + ">\n";
  for (const auto& [key, value, is_text] : arguments) {
    out += fmt::format("<parameter={}>\n{}\n</parameter>\n", key, value);
  }
  return out + "</function>\n</tool_call>";
}

std::string dsml(const std::string& name, const Arguments& arguments) {
  std::string out = "<｜DSML｜invoke name=\"" + name + "\">\n";
  for (const auto& [key, value, is_text] : arguments) {
    out += fmt::format(
        "<｜DSML｜parameter name=\"{}\" string=\"{}\">{}</｜DSML｜parameter>\n",
        key,
        is_text,
        value);
  }
  return out + "</｜DSML｜invoke>";
}

std::string minimax(const std::string& name, const Arguments& arguments) {
  std::string out = "<invoke name=\"" + name + "\">\n";
  for (const auto& [key, value, is_text] : arguments) {
    out += fmt::format("<parameter name=\"{}\">{}</parameter>\n", key, value);
  }
  return out + "</invoke>";
}

const Arguments kText = {{"text", "12 \"é\"\n <b>\\", true}, {"n", "3", false}};
const Arguments kObject = {{"city", R"({"a": [1, "</x>", null]})", false}};
const Read kBoth{
    "I look.",
    "hm",
    {{"f", R"({"text":"12 \"é\"\n <b>\\","n":3})"},
     {"get_weather", R"({"city":{"a":[1,"</x>",null]}})"}},
    2};

TEST(CoderCalls, AreRead) {
  const auto reader = with_tools("qwen_coder");
  expect(
      reader,
      "<think>hm</think>I look.\n\n" + coder("f", kText) + "\n" + coder("get_weather", kObject),
      kBoth);
  expect(reader, coder("f", {}), {"", "", {{"f", "{}"}}, 1});
  // The tags around it are forgotten at times, the end more often than the beginning.
  expect(
      reader,
      "I look.\n<function=f>\n<parameter=n>\n3\n</parameter>\n</function>\n</tool_call> done",
      {"I look. done", "", {{"f", R"({"n":3})"}}, 1});
  // Line breaks that are the text's own; numbers that are texts; Python's words.
  expect(
      reader,
      coder("f", {{"text", "\n12\n", true}, {"on", "True", false}, {"none", "None", false}}),
      {"", "", {{"f", R"({"text":"\n12\n","on":true,"none":null})"}}, 1});
  // The first of two counts.
  expect(
      reader,
      coder("f", {{"text", "a", true}, {"text", "b", true}, {"n", "1", false}, {"n", "2", false}}),
      {"", "", {{"f", R"({"text":"a","n":1})"}}, 1});
  // Tags of a program in a text are its own.
  expect(
      reader,
      coder("f", {{"text", "<a></function></tool_call><parameter=x>", true}}),
      {"", "", {{"f", R"({"text":"<a></function></tool_call><parameter=x>"})"}}, 1});
}

TEST(CoderCalls, WhatIsCutOffOrNoCall) {
  const auto reader = with_tools("qwen_coder");
  expect(
      reader,
      "<tool_call>\n<function=f>\n<parameter=text>\nlo\n</para",
      {"", "", {{"f", R"({"text":"lo\n</para)"}}, 0});
  expect(reader, "<tool_call>\n<function=f>\n<parameter=n>\n12", {"", "", {{"f", R"({"n":)"}}, 0});
  expect(reader, "x <tool_call>\n<function=f", {"x <tool_call>\n<function=f"});
  expect(reader, "if a <function=>x", {"if a <function=>x"});
  EXPECT_EQ(
      streamed(reader, "<tool_call>\n<function=f>\n<parameter=text>\na long tex"),
      R"({"text":"a long tex)");
}

// SmolLM2 lists its calls between the tags.
TEST(HermesCalls, AList) {
  const auto reader = with_tools("hermes");
  expect(
      reader,
      R"(Yes.<tool_call>[{"name": "f", "arguments": {"n": [1]}},
 {"name": "get_weather", "arguments": {}}]</tool_call> done)",
      {"Yes. done", "", {{"f", R"({"n": [1]})"}, {"get_weather", "{}"}}, 2});
  expect(reader, "No.<tool_call>[]</tool_call>", {"No."});
  expect(reader, "<tool_call>[1, 2]</tool_call>", {"<tool_call>[1, 2]</tool_call>"});
  expect(
      reader,
      R"(<tool_call>[{"name": "f", "arguments": {"a": 1}}, {"na)",
      {"", "", {{"f", R"({"a": 1})"}}, 1});
  expect(reader, R"(<tool_call>[ {"na)", {R"(<tool_call>[ {"na)"});
}

TEST(InvokeCalls, AreRead) {
  for (const auto& [format, begin, end, write] :
       {std::tuple{"deepseek_v32", "<｜DSML｜function_calls>", "</｜DSML｜function_calls>", &dsml},
        std::tuple{"deepseek_v4", "<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>", &dsml},
        std::tuple{"minimax", "<minimax:tool_call>", "</minimax:tool_call>", &minimax}}) {
    const auto reader = with_tools(format);
    const std::string open = std::string("\n\n") + begin + "\n";
    expect(
        reader,
        "<think>hm</think>I look." + open + write("f", kText) + "\n" +
            write("get_weather", kObject) + "\n" + end,
        kBoth);
    expect(reader, open + write("f", {}) + end + " done", {" done", "", {{"f", "{}"}}, 1});
    // Cut off: within a text, within a number, before there is a name.
    const std::string text = open + write("f", {{"text", "lo", true}});
    const size_t at = text.find("lo");
    expect(reader, text.substr(0, at + 2), {"", "", {{"f", R"({"text":"lo)"}}, 0});
    EXPECT_EQ(streamed(reader, text.substr(0, at + 2)), R"({"text":"lo)");
    const std::string number = open + write("f", {{"n", "12", false}});
    expect(reader, number.substr(0, number.find("12") + 2), {"", "", {{"f", R"({"n":)"}}, 0});
    const std::string early = text.substr(0, text.find("f\">"));
    expect(reader, "x" + early, {"x" + early});
    expect(reader, "x" + open + "hello", {"x" + open + "hello"});
  }
}

// DeepSeek says of each argument what it is.
TEST(InvokeCalls, TypesThatAreSaid) {
  expect(
      with_tools("deepseek_v4"),
      "<｜DSML｜tool_calls>\n" + dsml("f", {{"n", "12", true}, {"text", "[1]", false}}) +
          "\n</｜DSML｜tool_calls>",
      {"", "", {{"f", R"({"n":"12","text":[1]})"}}, 1});
}

std::string kimi(const std::string& id, const std::string& arguments) {
  return "<|tool_call_begin|>" + id + "<|tool_call_argument_begin|>" + arguments +
         "<|tool_call_end|>";
}

TEST(KimiCalls, AreRead) {
  const auto reader = options("kimi");
  const std::string begin = "<|tool_calls_section_begin|>";
  const std::string end = "<|tool_calls_section_end|>";
  expect(
      reader,
      "<think>hm</think>I look." + begin + kimi("functions.f:0", R"({"q": "}\"é"})") +
          kimi("functions.get_weather:1", R"({"city": {"a": [1, 2]}})") + end,
      {"I look.",
       "hm",
       {{"f", R"({"q": "}\"é"})"}, {"get_weather", R"({"city": {"a": [1, 2]}})"}},
       2});
  expect(reader, begin + kimi("f:12", "{}") + end, {"", "", {{"f", "{}"}}, 1});
  expect(reader, begin + kimi("functions.f:0", "") + end, {"", "", {{"f", "{}"}}, 1});
  expect(
      reader,
      begin + R"(<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": "lo)",
      {"", "", {{"f", R"({"a": "lo)"}}, 0});
}

TEST(LfmCalls, ArgumentsBecomeJson) {
  const auto reader = with_tools("lfm");
  const std::string begin = "<|tool_call_start|>";
  const std::string end = "<|tool_call_end|>";
  expect(
      reader,
      "<think>hm</think>I look." + begin +
          R"([f(text='it\'s "é"\n', n=-2.5, on=True, none=None), get_weather(city={'a': [1, (2,), "x"], 'b': {}},)])" +
          end + " done",
      {"I look. done",
       "hm",
       {{"f", R"({"text": "it's \"é\"\n", "n": -2.5E0, "on": true, "none": null})"},
        {"get_weather", R"({"city": {"a": [1, [2], "x"], "b": {}}})"}},
       2});
  expect(reader, begin + "[f()]" + end, {"", "", {{"f", "{}"}}, 1});
  // Arguments without a name have those of the parameters, in turn.
  expect(
      reader,
      begin + R"([f("""a "b" c""", 3)])" + end,
      {"", "", {{"f", R"({"text": "a \"b\" c", "n": 3})"}}, 1});
  expect(
      reader,
      begin + R"([f(text="\x41\u00e9\U0001F600\q", n=)])" + end,
      {"", "", {{"f", R"({"text": "\u0041\u00e9\ud83d\ude00\\q", "n": null})"}}, 1});
  expect(reader, begin + "[f(text=\"lo", {"", "", {{"f", R"({"text": "lo)"}}, 0});
  expect(reader, "x" + begin + "[f", {"x" + begin + "[f"});
  expect(reader, "x" + begin + "[unknown(a=1)]" + end, {"x" + begin + "[unknown(a=1)]" + end});
}

TEST(ToldCalls, HoweverTheyAreWritten) {
  const auto reader = with_tools("told");
  const Read one{"", "", {{"f", R"({"n": 3})"}}, 1};
  expect(reader, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 3}}\n</tool_call>", one);
  expect(reader, "<tool_call>[{\"name\": \"f\", \"arguments\": {\"n\": 3}}]</tool_call>", one);
  expect(reader, "{\"name\": \"f\", \"arguments\": {\"n\": 3}}", one);
  expect(reader, "```json\n{\"name\": \"f\", \"parameters\": {\"n\": 3}}\n```", one);
  expect(reader, "```tool_code\nf(n=3)\n```", one);
  expect(reader, "```tool_code\nprint(f(n=3))\n```", one);
  expect(reader, "```tool_code\nresult = f(n=3)\n# now wait\n```", one);
  expect(reader, "[f(n=3)]", one);
  expect(
      reader,
      "<think>hm</think>I look.\n```tool_code\nf(text='```x')\nget_weather()\n```\nand\n"
      "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
      {"I look.\nand",
       "hm",
       {{"f", R"({"text": "```x"})"}, {"get_weather", "{}"}, {"f", "{}"}},
       3});
  // No calls: code, lists and objects that are meant as such.
  for (const char* text :
       {"```json\n{\"a\": 1}\n```",
        "```python\nf(n=3)\n```",
        "```tool_code\nother(n=3)\n```",
        "[other(n=3)]",
        "[1, 2]",
        "[]",
        "`f(n=3)`",
        "Use f(n=3).",
        "```"}) {
    expect(reader, text, {text});
  }
}

}  // namespace

}  // namespace quince::test
