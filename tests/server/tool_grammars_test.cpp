// What a required call is held to is what the model was trained to write, and reads back as it was
// meant: of every way of writing.
#include <gtest/gtest.h>

#include "chat/reading.h"
#include "cli/tiny_tokenizer.h"
#include "constraint/walk.h"

namespace quince::test {

namespace {

namespace json = boost::json;

json::array tools() {
  return json::parse(R"([
      {"type": "function", "function": {"name": "f", "parameters": {
        "$defs": {"Item": {"type": "object", "properties": {"a": {"type": "integer"}},
                           "required": ["a"], "additionalProperties": false}},
        "type": "object",
        "properties": {"text": {"type": "string"}, "kind": {"type": "string", "enum": ["red", "blue"]},
                       "item": {"$ref": "#/$defs/Item"}},
        "required": ["text", "item"]}}},
      {"type": "function", "function": {"name": "get_weather"}}])")
      .as_array();
}

struct Written {
  const char* format;
  const char* one;    // f with all three arguments, the text with marks in it
  const char* other;  // f without what it does not require, and then get_weather
};

constexpr Written kWritten[] = {
    {"qwen_coder",
     "<tool_call>\n<function=f>\n<parameter=text>\nif a < b:\n  \"c\"\n</parameter>\n"
     "<parameter=kind>\nblue\n</parameter>\n<parameter=item>\n{\"a\":1}\n</parameter>\n"
     "</function>\n</tool_call>",
     "<tool_call>\n<function=f>\n<parameter=text>\n\n</parameter>\n<parameter=item>\n{\"a\": 1}\n"
     "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=get_weather>\n</function>\n"
     "</tool_call>"},
    {"glm",
     "<tool_call>f\n<arg_key>text</arg_key>\n<arg_value>if a < b:\n  \"c\"</arg_value>\n"
     "<arg_key>kind</arg_key>\n<arg_value>blue</arg_value>\n<arg_key>item</arg_key>\n"
     "<arg_value>{\"a\":1}</arg_value>\n</tool_call>",
     "<tool_call>f\n<arg_key>text</arg_key>\n<arg_value></arg_value>\n<arg_key>item</arg_key>\n"
     "<arg_value>{\"a\":1}</arg_value>\n</tool_call>\n<tool_call>get_weather\n</tool_call>"},
    {"deepseek_v32",
     "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n"
     "<｜DSML｜parameter name=\"text\" string=\"true\">if a < b:\n  \"c\"</｜DSML｜parameter>\n"
     "<｜DSML｜parameter name=\"kind\" string=\"true\">blue</｜DSML｜parameter>\n"
     "<｜DSML｜parameter name=\"item\" string=\"false\">{\"a\":1}</｜DSML｜parameter>\n"
     "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
     "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n"
     "<｜DSML｜parameter name=\"text\" string=\"true\"></｜DSML｜parameter>\n"
     "<｜DSML｜parameter name=\"item\" string=\"false\">{\"a\":1}</｜DSML｜parameter>\n"
     "</｜DSML｜invoke>\n<｜DSML｜invoke name=\"get_weather\">\n</｜DSML｜invoke>\n"
     "</｜DSML｜function_calls>"},
    {"minimax",
     "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"text\">if a < b:\n  \"c\""
     "</parameter>\n<parameter name=\"kind\">blue</parameter>\n"
     "<parameter name=\"item\">{\"a\":1}</parameter>\n</invoke>\n</minimax:tool_call>",
     "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"text\"></parameter>\n"
     "<parameter name=\"item\">{\"a\":1}</parameter>\n</invoke>\n<invoke name=\"get_weather\">\n"
     "</invoke>\n</minimax:tool_call>"},
    {"kimi",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
     "{\"text\": \"if a < b:\\n  \\\"c\\\"\", \"kind\": \"blue\", \"item\": {\"a\": 1}}"
     "<|tool_call_end|><|tool_calls_section_end|>",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:11<|tool_call_argument_begin|>"
     "{\"text\": \"\", \"item\": {\"a\": 1}}<|tool_call_end|><|tool_call_begin|>"
     "functions.get_weather:12<|tool_call_argument_begin|>{}<|tool_call_end|>"
     "<|tool_calls_section_end|>"},
    {"lfm",
     "<|tool_call_start|>[f(text=\"if a < b:\\n  \\\"c\\\"\", kind=\"blue\", item={\"a\": 1})]"
     "<|tool_call_end|>",
     "<|tool_call_start|>[f(text=\"\", item={\"a\": 1}), get_weather()]<|tool_call_end|>"},
    {"told",
     "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"text\": \"if a < b:\\n  \\\"c\\\"\", "
     "\"kind\": \"blue\", \"item\": {\"a\": 1}}}\n</tool_call>",
     "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"text\": \"\", \"item\": {\"a\": 1}}}\n"
     "</tool_call>\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {}}\n</tool_call>"}};

TEST(ToolGrammars, TakeWhatIsReadBack) {
  const Tokenizer tokenizer = tiny_tokenizer();
  ConstraintCompiler compiler(tokenizer, 260);
  for (const Written& written : kWritten) {
    AnswerReaderOptions reader = options(written.format);
    reader.callable = tools();
    const auto grammar = [&](bool many) {
      return compiler.compile(
          {ConstraintKind::lark, reader.tools->grammar(tools(), many, tokenizer)});
    };
    EXPECT_TRUE(takes(*grammar(false), written.one)) << written.format;
    EXPECT_TRUE(takes(*grammar(true), written.one)) << written.format;
    EXPECT_TRUE(takes(*grammar(true), written.other)) << written.format;
    EXPECT_FALSE(takes(*grammar(false), written.other)) << written.format;
    EXPECT_FALSE(takes(*grammar(true), "hello")) << written.format;
    const Read one = read(reader, written.one, {3});
    ASSERT_EQ(one.calls.size(), 1u) << written.format;
    EXPECT_EQ(one.calls[0].first, "f") << written.format;
    EXPECT_EQ(
        json::parse(one.calls[0].second),
        json::parse(R"({"text": "if a < b:\n  \"c\"", "kind": "blue", "item": {"a": 1}})"))
        << written.format << one.calls[0].second;
    EXPECT_EQ(one.content, "") << written.format;
    const Read both = read(reader, written.other, {5});
    ASSERT_EQ(both.calls.size(), 2u) << written.format;
    EXPECT_EQ(json::parse(both.calls[0].second), json::parse(R"({"text": "", "item": {"a": 1}})"))
        << written.format;
    EXPECT_EQ(both.calls[1].first, "get_weather") << written.format;
    EXPECT_EQ(both.calls[1].second, "{}") << written.format;
    EXPECT_EQ(both.ended, 2) << written.format;
  }
}

// The call of f with one argument t, as each of these ways has it.
struct Wrapped {
  const char* format;
  const char* before;
  const char* behind;
};
constexpr Wrapped kWrapped[] = {
    {"qwen_coder",
     "<tool_call>\n<function=f>\n<parameter=t>\n",
     "\n</parameter>\n</function>\n</tool_call>"},
    {"glm", "<tool_call>f\n<arg_key>t</arg_key>\n<arg_value>", "</arg_value>\n</tool_call>"},
    {"deepseek_v32",
     "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n"
     "<｜DSML｜parameter name=\"t\" string=\"true\">",
     "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"},
    {"minimax",
     "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"t\">",
     "</parameter>\n</invoke>\n</minimax:tool_call>"},
    {"gemma", "<|tool_call>call:f{t:<|\"|>", "<|\"|>}<tool_call|>"}};

struct Told {
  const char* schema;
  std::vector<const char*> good;
  std::vector<const char*> bad;
};

// Texts without quotation marks are held to their schema too.
TEST(ToolGrammars, HoldTextsToTheirSchema) {
  const Tokenizer tokenizer = tiny_tokenizer();
  ConstraintCompiler compiler(tokenizer, 260);
  const std::vector<Told> cases = {
      {R"({"minLength": 2, "maxLength": 3})",
       {"ab", "a\n\"", "\xc3\xa9\xc3\xa9\xc3\xa9"},
       {"", "a", "abcd"}},
      {R"({"minLength": 2})", {"ab", "abcdefgh"}, {"", "a"}},
      {R"({"maxLength": 0})", {""}, {"a"}},
      {R"({"pattern": "^[A-Z]{2}\\d/\\w$"})", {"AB1/_"}, {"AB1", "xAB1/x", "AB1/xy", "A\xc3\xa9"}},
      {R"({"pattern": "b+"})", {"b", "abba"}, {"", "ac"}},
      {R"({"pattern": "^a|b$"})", {"axx", "xxb", "a"}, {"xax", "bx"}},
      {R"({"pattern": "a\\$$"})", {"a$", "xa$"}, {"a$x", "a"}},
      {R"({"enum": ["red", "blue"]})", {"red", "blue"}, {"", "re", "redd"}},
      {R"({"enum": ["red", "blue"], "maxLength": 3})", {"red"}, {"blue"}},
      {R"({"const": "x y"})", {"x y"}, {"x", ""}},
      {R"({"format": "date"})", {"2026-11-30"}, {"2026-11-31", "2026-1-1", ""}},
      {R"({"format": "date-time"})",
       {"2026-11-30T01:02:03Z", "2026-02-03t01:02:03.5+01:00"},
       {"2026-11-30"}},
      {R"({"format": "duration"})", {"P1D", "PT5M", "P1Y2MT3S", "P2W"}, {"P", "PT", "5M"}},
      {R"({"format": "email"})", {"a.b+c@d-e.org"}, {"a@", "@b.c", "a b@c.d"}},
      {R"({"format": "ipv4"})", {"127.0.0.1"}, {"256.0.0.1", "1.2.3"}},
      {R"({"format": "ipv6"})", {"::", "::1", "fe80::1:2", "1:2:3:4:5:6:7:8"}, {"1:2", "1::2::3"}},
      {R"({"format": "uuid"})", {"01234567-89ab-cdef-0123-456789abcdef"}, {"0123"}},
      {R"({"format": "uri"})", {"https://a.org/b?c=d#e", "ftp://x"}, {"a.org", "https://"}}};
  for (const Wrapped& way : kWrapped) {
    const ToolFormat& format = *options(way.format).tools;
    for (const Told& told : cases) {
      json::object text = json::parse(told.schema).as_object();
      text["type"] = "string";
      const json::array tools{json::object{
          {"type", "function"},
          {"function",
           {{"name", "f"},
            {"parameters",
             {{"type", "object"},
              {"properties", {{"t", text}}},
              {"required", json::array{"t"}}}}}}}};
      const auto constraint =
          compiler.compile({ConstraintKind::lark, format.grammar(tools, false, tokenizer)});
      const auto takes_text = [&](const std::string& value) {
        return takes(*constraint, way.before + value + way.behind);
      };
      for (const char* value : told.good) {
        EXPECT_TRUE(takes_text(value)) << way.format << " " << told.schema << " " << value;
      }
      for (const char* value : told.bad) {
        EXPECT_FALSE(takes_text(value)) << way.format << " " << told.schema << " " << value;
      }
      EXPECT_FALSE(takes_text(std::string("ab") + way.behind)) << way.format << told.schema;
    }
  }
}

}  // namespace

}  // namespace quince::test
