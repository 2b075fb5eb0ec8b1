// What every route that takes a body says of bodies that are wrong, odd or nested without end.
#include <chrono>

#include <fmt/format.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "server/routes.h"
#include "server/served.h"

namespace quince::test {

namespace {

namespace json = boost::json;
using testing::HasSubstr;

// What a good body of each route holds.
const std::map<std::string, std::string>& good_bodies() {
  const std::string messages = R"("messages":[{"role":"user","content":"hi"}])";
  static const std::map<std::string, std::string> bodies = {
      {"/v1/chat/completions", messages},
      {"/chat/completions", messages},
      {"/v1/completions", R"("prompt":"hi")"},
      {"/completion", R"("prompt":"hi")"},
      {"/completions", R"("prompt":"hi")"},
      {"/v1/embeddings", R"("input":"hi")"},
      {"/v1/responses", R"("input":"hi")"},
      {"/v1/messages", messages + R"(,"max_tokens":20)"},
      {"/v1/messages/count_tokens", messages},
      {"/infill", R"("input_prefix":"hi","input_suffix":"x")"},
      {"/tokenize", R"("content":"hi")"},
      {"/detokenize", R"("tokens":[266])"},
      {"/apply-template", messages}};
  return bodies;
}

bool generates(const std::string& route) {
  return route.find("completion") != std::string::npos || route == "/v1/responses" ||
         route == "/v1/messages" || route == "/infill";
}

// In the form of the route's API.
void expect_refused(const Answer& answer, const std::string& route, const std::string& what) {
  ASSERT_EQ(answer.status, 400) << route << " " << what << answer.body;
  const json::value error = answer.json().at("error");  // JSON, which is UTF-8
  EXPECT_TRUE(error.at("message").is_string()) << route << what;
  EXPECT_TRUE(error.at("type").is_string()) << route << what;
  if (!route.starts_with("/v1/messages")) {
    EXPECT_TRUE(error.as_object().contains("param")) << route << what;
    EXPECT_TRUE(error.as_object().contains("code")) << route << what;
  }
}

class Bodies : public ServedTest<Script::script> {
 protected:
  static void expect_alive() {
    EXPECT_EQ(served().get("/health").status, 200);
    EXPECT_EQ(
        text_of(served().post(
            "/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}]})")),
        kScriptText);
  }
  // The model was not taught to fill in, and says so of any good body.
  static void expect_taken(const std::string& route, const Answer& answer) {
    if (route == "/infill") {
      EXPECT_THAT(answer.body, HasSubstr("fill in"));
    } else {
      EXPECT_EQ(answer.status, 200) << route << answer.body;
    }
  }
};

// A route that is new takes part in the tests below.
TEST_F(Bodies, AreKnownOfEveryRoute) {
  for (const server::Route& route : server::routes()) {
    const std::string path(route.path);
    if (route.method == "POST" && path.find('{') == std::string::npos) {
      EXPECT_TRUE(good_bodies().contains(path)) << path;
    }
  }
}

// HTTP-06.
TEST_F(Bodies, ThatAreWrong) {
  for (const auto& [route, good] : good_bodies()) {
    const bool has_messages = good.find("messages") != std::string::npos;
    std::vector<std::string> wrong = {
        "",
        "{",
        "[]",
        "\"x\"",
        "5",
        "null",
        "{}",
        "NaN",
        "[[[",
        "{'a':1}",
        R"({"a":01})",
        R"({"a":1,})",
        "{\"a\":\"\n\"}",
        std::string("\0", 1),
        "{" + good + "} garbage",
        "{\"messages\":\"\xff\xfe\",\"prompt\":\"\xff\xfe\",\"input\":\"\xff\xfe\"}",
        "{\"content\":\"\xc4\xe3\xba\xc3\",\"prompt\":\"\xc4\xe3\xba\xc3\"}",  // GBK
        "{" + good + R"(,"model":5})"};
    if (generates(route)) {
      wrong.push_back("{" + good + R"(,"temperature":"hot"})");
      wrong.push_back("{" + good + R"(,"stream":"yes"})");
      wrong.push_back(
          "{" + good +
          (route == "/v1/responses" ? R"(,"max_output_tokens":1.5})" : R"(,"max_tokens":1.5})"));
    }
    if (generates(route) && route != "/v1/responses") {
      wrong.push_back(
          "{" + good + (route == "/v1/messages" ? R"(,"stop_sequences":5})" : R"(,"stop":5})"));
    }
    for (const char* messages :
         {"\"hi\"",
          "[1]",
          "[{}]",
          R"([{"role":"user"}])",
          R"([{"role":"wizard","content":"x"}])",
          "{}",
          "null"}) {
      if (has_messages) {
        wrong.push_back(fmt::format(R"({{"max_tokens":5,"messages":{}}})", messages));
      }
    }
    Client one = served().client();  // bears it all
    for (const std::string& body : wrong) {
      one.post(route, body);
      const Answer answer = one.read_answer();
      expect_refused(answer, route, body);
      EXPECT_EQ(answer.headers.at("connection"), "keep-alive") << route << body;
    }
    one.post(route, "{" + good + R"(,"unknown_field":{"a":1}})");
    expect_taken(route, one.read_answer());
  }
  expect_alive();
}

// HTTP-06: odd, and meant well.
TEST_F(Bodies, ThatAreOdd) {
  for (const auto& [route, good] : good_bodies()) {
    expect_taken(route, served().post(route, "\xef\xbb\xbf{" + good + "}"));
    expect_taken(route, served().post(route, "{" + good + R"(,"user":"a","user":"b"})"));
    Client plain = served().client();
    const std::string body = "{" + good + "}";
    plain.send(fmt::format(
        "POST {} HTTP/1.1\r\nHost: t\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{}",
        route,
        body.size(),
        body));
    expect_taken(route, plain.read_answer());
    for (const char* text : {R"("\ud800")", R"("a\udc00b")", R"("a\u0000b")"}) {
      std::string odd = "{" + good + "}";
      const size_t at = odd.find("\"hi\"");
      if (at == std::string::npos) {
        continue;
      }
      const Answer answer = served().post(route, odd.replace(at, 4, text));
      EXPECT_THAT(answer.status, testing::AnyOf(200, 400)) << route << text;
      EXPECT_TRUE(answer.json().is_object()) << route << text;
    }
  }
  expect_alive();
}

std::string nested(
    size_t depth,
    const std::string& open = "[",
    const std::string& core = "",
    const std::string& close = "]") {
  std::string out;
  for (size_t i = 0; i < depth; ++i) {
    out += open;
  }
  out += core;
  for (size_t i = 0; i < depth; ++i) {
    out += close;
  }
  return out;
}

// Within the second that the case gives.
void expect_refused_soon(
    Served& served, const std::string& route, const std::string& body, const std::string& what) {
  const auto begin = std::chrono::steady_clock::now();
  const Answer answer = served.post(route, body);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1)) << route << what;
  expect_refused(answer, route, what);
}

// JSON-07: no parser's stack is at the mercy of a client.
TEST_F(Bodies, ThatAreNestedWithoutEnd) {
  for (const auto& [route, good] : good_bodies()) {
    for (const size_t depth : {1000, 10000, 1000000}) {
      const std::string what = std::to_string(depth);
      expect_refused_soon(served(), route, "{\"x\":" + nested(depth) + "}", what);
      expect_refused_soon(
          served(),
          route,
          "{" + good + ",\"unknown\":" + nested(depth, "{\"a\":", "1", "}") + "}",
          what);
      expect_refused_soon(served(), route, std::string(depth, '['), what);
    }
    expect_taken(route, served().post(route, "{" + good + ",\"x\":" + nested(30) + "}"));
  }
  expect_alive();
}

TEST_F(Bodies, WithPartsThatAreNestedWithoutEnd) {
  const std::string chat = "/v1/chat/completions";
  const auto ask = [](const std::string& fields) {
    return R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":3,)" + fields + "}";
  };
  const auto schema = [](size_t depth) {
    return nested(depth, R"({"type":"array","items":)", R"({"type":"integer"})", "}");
  };
  const auto tool = [](const std::string& parameters) {
    return R"("tools":[{"type":"function","function":{"name":"f","parameters":)" + parameters +
           "}}]";
  };
  const auto form = [](const std::string& schema) {
    return R"("response_format":{"type":"json_schema","json_schema":{"name":"n","schema":)" +
           schema + "}}";
  };
  const std::string open(60000, '(');
  const std::string close(60000, ')');
  for (const std::string& fields :
       {tool(schema(3000)),
        form(schema(3000)),
        R"("json_schema":)" + schema(3000),
        R"("chat_template_kwargs":{"a":)" + nested(3000) + "}",
        R"("grammar":"root ::= )" + open + "\"",
        R"("grammar":"root ::= )" + open + R"(\"a\")" + close + "\"",
        R"("structured_outputs":{"regex":")" + open + "a" + close + "\"}"}) {
    expect_refused_soon(served(), chat, ask(fields), fields.substr(0, 40));
  }
  for (const std::string& fields :
       {tool(R"({"type":"object","properties":{"a":)" + schema(20) + "}}"), form(schema(20))}) {
    EXPECT_EQ(served().post(chat, ask(fields)).status, 200) << fields;
  }
  // A call that comes back in the next turn: its arguments are a text that is parsed too.
  const auto turn = [](const std::string& arguments) {
    return R"({"max_tokens":3,"messages":[{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":)" +
           json::serialize(json::value(arguments)) +
           R"(}}]},{"role":"tool","tool_call_id":"c1","content":"ok"}]})";
  };
  expect_refused_soon(served(), chat, turn("{\"a\":" + nested(10000) + "}"), "arguments");
  EXPECT_THAT(
      served().post(chat, turn("{\"a\":" + nested(10000) + "}")).body,
      HasSubstr("messages[1].tool_calls[0].function.arguments"));
  for (const std::string& arguments :
       {"{\"a\":" + nested(30) + "}", std::string("not json"), std::string()}) {
    EXPECT_EQ(served().post(chat, turn(arguments)).status, 200) << arguments;
  }
  expect_alive();
}

}  // namespace

}  // namespace quince::test
