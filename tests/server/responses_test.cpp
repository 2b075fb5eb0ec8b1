// The Responses API through a socket.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "server/served.h"

namespace quince::test {

namespace {

namespace json = boost::json;

constexpr const char* kRoute = "/v1/responses";

class Responses : public ServedTest<Script::script> {};
class ResponsesContext : public ServedTest<Script::majority> {};

Answer remove(Served& served, const std::string& path) {
  Client c = served.client();
  c.send("DELETE " + path + " HTTP/1.1\r\nHost: t\r\n\r\n");
  return c.read_answer();
}

TEST_F(Responses, AWholeOneThatIsKept) {
  const Answer answer = served().post(kRoute, R"({"input":"hi","instructions":"be kind"})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const json::value body = answer.json();
  EXPECT_EQ(body.at("object"), "response");
  EXPECT_EQ(body.at("status"), "completed");
  EXPECT_TRUE(body.at("error").is_null());
  EXPECT_EQ(body.at("instructions"), "be kind");
  const json::value& item = body.at("output").at(0);
  EXPECT_EQ(item.at("type"), "message");
  EXPECT_EQ(item.at("role"), "assistant");
  EXPECT_EQ(item.at("content").at(0).at("type"), "output_text");
  EXPECT_EQ(item.at("content").at(0).at("text"), kScriptText);
  EXPECT_EQ(body.at("usage").at("output_tokens"), 11);
  EXPECT_EQ(body.at("usage").at("input_tokens_details").at("cached_tokens"), 0);
  const std::string path = std::string(kRoute) + "/" + std::string(body.at("id").as_string());
  EXPECT_EQ(served().get(path).json(), body);
  EXPECT_EQ(remove(served(), path).json().at("deleted"), true);
  EXPECT_EQ(served().get(path).status, 404);
  EXPECT_EQ(remove(served(), path).status, 404);
  const json::value unkept = served().post(kRoute, R"({"input":"hi","store":false})").json();
  EXPECT_EQ(
      served().get(std::string(kRoute) + "/" + std::string(unkept.at("id").as_string())).status,
      404);
  const json::value cut = served().post(kRoute, R"({"input":"hi","max_output_tokens":2})").json();
  EXPECT_EQ(cut.at("status"), "incomplete");
  EXPECT_EQ(cut.at("incomplete_details").at("reason"), "max_output_tokens");
  EXPECT_EQ(cut.at("output").at(0).at("status"), "incomplete");
  EXPECT_EQ(item.at("status"), "completed");
}

TEST_F(Responses, AStream) {
  const auto list = events(served().post(kRoute, R"({"input":"hi","stream":true})").body);
  std::vector<std::string> types;
  std::string text;
  for (size_t i = 0; i < list.size(); ++i) {
    const json::value event = json::parse(list[i]);
    EXPECT_EQ(event.at("sequence_number"), i);
    const std::string type(event.at("type").as_string());
    if (type == "response.output_text.delta") {
      text += std::string(event.at("delta").as_string());
    }
    if (types.empty() || types.back() != type) {
      types.push_back(type);
    }
  }
  EXPECT_EQ(text, kScriptText);
  EXPECT_EQ(
      types,
      (std::vector<std::string>{
          "response.created",
          "response.in_progress",
          "response.output_item.added",
          "response.content_part.added",
          "response.output_text.delta",
          "response.output_text.done",
          "response.content_part.done",
          "response.output_item.done",
          "response.completed"}));
  EXPECT_EQ(
      json::parse(list.back()).at("response").at("output").at(0).at("content").at(0).at("text"),
      kScriptText);
}

// The answer depends on every letter of the conversation.
TEST_F(ResponsesContext, GoesOnWithEarlierOnes) {
  const json::value first =
      served().post(kRoute, R"({"input":"AAAB","max_output_tokens":2})").json();
  EXPECT_EQ(first.at("output").at(0).at("content").at(0).at("text"), "AA");
  const json::value second =
      served()
          .post(
              kRoute,
              R"({"input":"BBBB","max_output_tokens":1,"previous_response_id":")" +
                  std::string(first.at("id").as_string()) + R"("})")
          .json();
  // BOS, AAAB, AA, BBBB: five of each but for the first; alone it would be B.
  EXPECT_EQ(second.at("usage").at("input_tokens"), 11);
  EXPECT_EQ(
      served().post(kRoute, R"({"input":"A","previous_response_id":"resp_nothing"})").status, 404);
}

TEST(ResponsesCancel, SaysWhatBecameOfIt) {
  EngineOptions engine;
  engine.context_length = 200000;  // so that it does not end by itself
  Served served(serve_script(Script::loop, "L", engine));
  Client c = served.client();
  c.post(kRoute, R"({"input":"x","stream":true})");
  const std::string path = std::string(kRoute) + "/" + c.read_head().headers.at("x-request-id");
  c.read_chunk();
  const Answer cancelled = served.post(path + "/cancel", "");
  ASSERT_EQ(cancelled.status, 200) << cancelled.body;
  EXPECT_EQ(cancelled.json().at("object"), "response");
  EXPECT_EQ(cancelled.json().at("status"), "cancelled");
  std::string body;
  while (auto chunk = c.read_chunk()) {
    body += *chunk;
  }
  const json::value last = json::parse(body.substr(body.rfind("data: ") + 6));
  EXPECT_EQ(last.at("type"), "response.incomplete");
  EXPECT_EQ(last.at("response").at("status"), "cancelled");
  EXPECT_TRUE(last.at("response").at("incomplete_details").is_null());
  EXPECT_EQ(last.at("response").at("output").at(0).at("status"), "incomplete");
  EXPECT_EQ(served.get(path).json(), last.at("response"));
  EXPECT_EQ(served.post(path + "/cancel", "").json(), last.at("response")) << "had ended";
  EXPECT_EQ(served.post(std::string(kRoute) + "/resp_nothing/cancel", "").status, 404);
}

// A conversation that is too long: its oldest turns go, and no more of them than must.
TEST_F(ResponsesContext, Truncation) {
  const auto turn = [](int size, char c) {
    return R"({"role":"user","content":")" + std::string(static_cast<size_t>(size), c) +
           R"("},{"role":"assistant","content":"A"},)";
  };
  const auto body = [&](const std::string& turns, const std::string& fields) {
    return R"({"input":[{"role":"system","content":"CC"},)" + turns +
           R"({"role":"user","content":"BBB"}],"max_output_tokens":4)" + fields + "}";
  };
  const std::string long_one = turn(300, 'A') + turn(250, 'B') + turn(200, 'B');
  for (const char* disabled : {"", R"(,"truncation":"disabled")", R"(,"truncation":null)"}) {
    const Answer answer = served().post(kRoute, body(long_one, disabled));
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_EQ(answer.json().at("error").at("code"), "context_length_exceeded");
  }
  const Answer cut = served().post(kRoute, body(long_one, R"(,"truncation":"auto")"));
  ASSERT_EQ(cut.status, 200) << cut.body;
  // What the system says, two turns of three, and the question.
  EXPECT_EQ(cut.json().at("usage").at("input_tokens"), 1 + 2 + 251 + 201 + 3);
  EXPECT_EQ(cut.json().at("truncation"), "auto");
  // Kept whole, and cut again when it goes on.
  const std::string id(cut.json().at("id").as_string());
  const Answer next = served().post(
      kRoute,
      R"({"input":"B","max_output_tokens":4,"truncation":"auto","previous_response_id":")" + id +
          "\"}");
  ASSERT_EQ(next.status, 200) << next.body;
  EXPECT_LT(next.json().at("usage").at("input_tokens").as_int64(), 509);
  EXPECT_GT(next.json().at("usage").at("input_tokens").as_int64(), 400);
  const Answer fits = served().post(kRoute, body(turn(10, 'B'), R"(,"truncation":"auto")"));
  EXPECT_EQ(fits.json().at("usage").at("input_tokens"), 1 + 2 + 11 + 3);
  // The last turn alone is too long.
  const Answer never =
      served().post(kRoute, R"({"truncation":"auto","input":")" + std::string(600, 'B') + "\"}");
  EXPECT_EQ(never.status, 400);
  EXPECT_EQ(never.json().at("error").at("code"), "context_length_exceeded");
  EXPECT_EQ(served().post(kRoute, R"({"input":"x","truncation":"some"})").status, 400);
}

TEST_F(Responses, Include) {
  const std::string asked =
      R"({"input":"hi","top_logprobs":2,"include":["message.output_text.logprobs"])";
  const json::value part =
      served().post(kRoute, asked + "}").json().at("output").at(0).at("content").at(0);
  std::string text;
  for (const json::value& token : part.at("logprobs").as_array()) {
    for (const json::value& byte : token.at("bytes").as_array()) {
      text += static_cast<char>(byte.as_int64());
    }
    EXPECT_EQ(token.at("top_logprobs").as_array().size(), 2u);
    EXPECT_LE(token.at("logprob").to_number<double>(), 0);
  }
  EXPECT_EQ(text, " " + std::string(kScriptText));
  json::array streamed;
  for (const std::string& event :
       events(served().post(kRoute, asked + R"(,"stream":true})").body)) {
    const json::value value = json::parse(event);
    if (value.at("type") == "response.output_text.delta") {
      const json::array& more = value.at("logprobs").as_array();
      streamed.insert(streamed.end(), more.begin(), more.end());
    }
  }
  EXPECT_EQ(streamed, part.at("logprobs"));
  const Answer plain =
      served().post(kRoute, R"({"input":"hi","include":["reasoning.encrypted_content"]})");
  EXPECT_EQ(plain.status, 200) << plain.body;
  EXPECT_EQ(plain.headers.at("x-quince-ignored"), "include.reasoning.encrypted_content");
  EXPECT_TRUE(
      plain.json().at("output").at(0).at("content").at(0).at("logprobs").as_array().empty());
  EXPECT_EQ(served().post(kRoute, R"({"input":"hi","include":["everything"]})").status, 400);
  EXPECT_EQ(
      served()
          .post(
              kRoute,
              R"({"input":"hi","include":["message.output_text.logprobs"],"top_logprobs":21})")
          .status,
      400);
}

TEST_F(Responses, ItemsAndErrors) {
  const Answer items = served().post(
      kRoute,
      R"({"input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},{"type":"reasoning","summary":[]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"r"}],"text":{"format":{"type":"text"}},"reasoning":{"effort":"low"},"tools":[{"type":"web_search"}]})");
  EXPECT_EQ(items.status, 200) << items.body;
  for (const char* body :
       {"{}",
        R"({"input":5})",
        R"({"input":[5]})",
        R"({"input":[{"type":"image_generation_call"}]})",
        R"({"input":"x","max_output_tokens":0})",
        R"({"input":"x","background":true})",
        R"({"input":"x","text":{"format":{"type":"json_schema"}}})"}) {
    EXPECT_EQ(served().post(kRoute, body).status, 400) << body;
  }
  const json::value form =
      served()
          .post(
              kRoute,
              R"({"input":"x","text":{"format":{"type":"json_schema","name":"n","schema":{"const":7}}}})")
          .json();
  EXPECT_EQ(form.at("output").at(0).at("content").at(0).at("text"), "7");
}

TEST(ResponsesTools, AreItems) {
  const std::string body =
      R"({"input":"x","tools":[{"type":"function","name":"f","parameters":{"type":"object","properties":{"q":{"type":"string"}}}}])";
  Served tool(serve_script(Script::tool, "T"));
  const json::value whole = tool.post(kRoute, body + "}").json();
  ASSERT_EQ(whole.at("output").as_array().size(), 1u);
  EXPECT_EQ(whole.at("output").at(0).at("type"), "function_call");
  EXPECT_EQ(whole.at("output").at(0).at("arguments"), "{\"q\": \"\xc3\xa9\"}");
  std::string arguments;
  for (const std::string& event : events(tool.post(kRoute, body + R"(,"stream":true})").body)) {
    const json::value value = json::parse(event);
    if (value.at("type") == "response.function_call_arguments.delta") {
      arguments += std::string(value.at("delta").as_string());
    }
  }
  EXPECT_EQ(arguments, "{\"q\": \"\xc3\xa9\"}");
  Served think(serve_script(Script::think, "K"));
  const json::value thought = think.post(kRoute, R"({"input":"x"})").json();
  EXPECT_EQ(thought.at("output").at(0).at("type"), "reasoning");
  EXPECT_EQ(thought.at("output").at(0).at("content").at(0).at("text"), "x");
  EXPECT_EQ(thought.at("output").at(1).at("content").at(0).at("text"), "y");
}

// The items of an answer without their ids: type, status, and text or arguments.
std::string items_of(const json::value& response) {
  std::string out;
  for (const json::value& item : response.at("output").as_array()) {
    const bool call = item.at("type") == "function_call";
    out += std::string(item.at("type").as_string()) + " " +
           std::string(item.at("status").as_string()) + " [" +
           std::string(
               (call ? item.at("arguments") : item.at("content").at(0).at("text")).as_string()) +
           "]\n";
  }
  return out;
}

// Of both the plain and the streamed answer, which are to agree.
json::value both(Served& served, const std::string& fields) {
  const std::string body =
      R"({"input":"x","tools":[{"type":"function","name":"f","parameters":{"type":"object"}}])" +
      fields;
  const json::value plain = served.post(kRoute, body + "}").json();
  const auto list = events(served.post(kRoute, body + R"(,"stream":true})").body);
  const json::value last = json::parse(list.back());
  EXPECT_EQ(items_of(last.at("response")), items_of(plain)) << fields;
  EXPECT_EQ(last.at("response").at("status"), plain.at("status"));
  EXPECT_EQ(last.at("response").at("incomplete_details"), plain.at("incomplete_details"));
  std::string done;
  for (const std::string& event : list) {
    const json::value value = json::parse(event);
    if (value.at("type") == "response.output_item.done") {
      done += items_of({{"output", json::array{value.at("item")}}});
    }
  }
  EXPECT_EQ(done, items_of(plain)) << fields;
  return plain;
}

// A call is incomplete when its arguments are: not when the answer is cut behind them.
TEST(ResponsesTools, ACallThatIsCut) {
  Served tool(serve_script(Script::tool, "T"));
  for (const int tokens : {8, 10, 11, 12, 13}) {
    const json::value cut = both(tool, R"(,"max_output_tokens":)" + std::to_string(tokens));
    EXPECT_EQ(cut.at("status"), "incomplete") << tokens;
    EXPECT_EQ(cut.at("incomplete_details").at("reason"), "max_output_tokens");
    EXPECT_EQ(
        items_of(cut),
        tokens == 8    ? "function_call incomplete [{\"q\": \"]\n"
        : tokens == 10 ? "function_call incomplete [{\"q\": \"\xc3\xa9]\n"
                       : "function_call completed [{\"q\": \"\xc3\xa9\"}]\n")
        << tokens;
  }
  const json::value text = both(tool, R"(,"max_output_tokens":3)");
  EXPECT_EQ(items_of(text), "message incomplete [<tool_call>{\"name\":]\n");
}

// Also where one token has the end of a call and the text behind it.
TEST(ResponsesTools, ItemsAreInTheOrderOfTheText) {
  Served mixed(serve_script(Script::mixed, "X"));
  const std::string call = "function_call completed [{\"q\": \"\xc3\xa9\"}]\n";
  const json::value whole = both(mixed, "");
  EXPECT_EQ(items_of(whole), "message completed [x]\n" + call + "message completed [ y]\n");
  EXPECT_EQ(whole.at("status"), "completed");
  const json::value cut = both(mixed, R"(,"max_output_tokens":14)");
  EXPECT_EQ(items_of(cut), "message completed [x]\n" + call + "message incomplete [ y]\n");
  EXPECT_EQ(cut.at("status"), "incomplete");
}

}  // namespace

}  // namespace quince::test
