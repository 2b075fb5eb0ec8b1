// Bodies of every framing, to a server that needs a key and through a gateway before it.
#include <chrono>

#include <fmt/format.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "gateway/secret.h"
#include "server/gatewayed.h"
#include "server/served.h"

namespace quince::test {

namespace {

namespace json = boost::json;
using testing::HasSubstr;

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kKey = "the-key-of-alice";

class FramedBodies : public testing::Test {
 protected:
  static Served& server() {
    static Served served(serve_script(Script::script, "S"), [] {
      server::AppOptions options;
      options.api_keys = {kKey};
      return options;
    }());
    return served;
  }
  static Gatewayed& gateway() {
    static Gatewayed gateway(fmt::format(
        "[keys.alice]\nhash = \"{}\"\n[upstreams.box]\nurl = \"http://127.0.0.1:{}\"\nkey = "
        "\"{}\"\n[models.S]\nupstreams = [\"box\"]\n",
        gateway::hash_secret(kKey),
        server().server->port(),
        kKey));
    return gateway;
  }
  static std::vector<int> ports() {
    return {server().server->port(), gateway().server->port()};
  }
  static std::string head(
      const std::string& headers, const std::string& key = kKey, const std::string& path = kChat) {
    return fmt::format(
        "POST {} HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nAuthorization: Bearer "
        "{}\r\n{}\r\n",
        path,
        key,
        headers);
  }
  static std::string ask(size_t spaces = 0) {
    return R"({"model":"S","messages":[{"role":"user","content":"hi"}],"temperature":0})" +
           std::string(spaces, ' ');
  }
  static void expect_answered(const Answer& answer) {
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(text_of(answer), kScriptText);
  }
  static void expect_error(const Answer& answer, int status) {
    EXPECT_EQ(answer.status, status) << answer.body;
    EXPECT_TRUE(answer.json().at("error").at("message").is_string());
  }
};

// HTTP-05 (a), (b).
TEST_F(FramedBodies, ThatWaitToBeAskedFor) {
  for (const int port : ports()) {
    const std::string body = ask(2 << 20);
    const std::string length = fmt::format("Content-Length: {}\r\n", body.size());
    const std::string expect = "Expect: 100-continue\r\n";
    Client c(port);
    const auto begin = std::chrono::steady_clock::now();
    c.send(head(length + expect));
    EXPECT_EQ(c.read_until("\r\n\r\n", 5), "HTTP/1.1 100 Continue\r\n\r\n");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(500));
    c.send(body);
    expect_answered(c.read_answer());
    // Refused at once, whether the body comes or not.
    Client waits(port);
    waits.send(head(length + expect, "no-such-key"));
    expect_error(waits.read_answer(), 401);
    Client sends(port);
    EXPECT_TRUE(sends.send(head(length, "no-such-key") + body));
    expect_error(sends.read_answer(), 401);
    Client large(port);
    large.send(head("Content-Length: 1099511627776\r\n" + expect));
    expect_error(large.read_answer(), 413);
  }
}

// HTTP-05 (c), (d).
TEST_F(FramedBodies, InChunks) {
  const std::string chunked = "Transfer-Encoding: chunked\r\n";
  for (const int port : ports()) {
    Client c(port);
    for (int i = 0; i < 2; ++i) {  // the connection is of use after it
      std::string framed;
      for (const char letter : ask()) {
        framed += fmt::format("1;name=value;other=\"a b\"\r\n{}\r\n", letter);
      }
      c.send(head(chunked));
      for (const char byte : framed.substr(0, 60)) {  // each in a packet of its own
        c.send(std::string(1, byte));
      }
      c.send(framed.substr(60));
      c.send("0\r\nX-Trailer: a\r\nOther: b\r\n\r\n");
      expect_answered(c.read_answer());
    }
    Client bad(port);
    bad.send(head(chunked) + "zz\r\n{}\r\n0\r\n\r\n");
    expect_error(bad.read_answer(), 400);
    EXPECT_TRUE(bad.closed_by_server());
    // The last chunk is missing: nothing is believed to be the whole.
    Client cut(port);
    cut.send(head(chunked) + fmt::format("{:x}\r\n{}\r\n", ask().size(), ask()));
    EXPECT_FALSE(cut.readable(0.1));
    cut.end_writing();
    expect_error(cut.read_answer(), 400);
    Client alive(port);
    alive.send(head(fmt::format("Content-Length: {}\r\n", ask().size())) + ask());
    expect_answered(alive.read_answer());
  }
}

// HTTP-06 and JSON-07 where only the name of the model is looked at.
TEST_F(FramedBodies, ThatAreWrongAreRefusedBeforeTheGateway) {
  const std::string deep = std::string(10000, '[') + std::string(10000, ']');
  const std::string deepest = std::string(1000000, '[') + std::string(1000000, ']');
  for (const std::string& body : std::vector<std::string>{
           "",
           "{",
           "[]",
           "\"x\"",
           "{}",
           "NaN",
           ask() + " garbage",
           R"({"model":5})",
           "{\"model\":\"S\",\"messages\":\"\xff\xfe\"}",
           R"({"model":"S","messages":"hi"})",
           R"({"model":"S","messages":[{"role":"user","content":"hi"}],"temperature":"hot"})",
           R"({"model":"S","x":)" + deep + "}",
           R"({"model":"S","x":)" + deepest + "}"}) {
    const auto begin = std::chrono::steady_clock::now();
    const Answer answer =
        gateway().post(kChat, body, std::string("Authorization: Bearer ") + kKey + "\r\n");
    expect_error(answer, 400);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
  }
}

// HTTP-08 for what is refused before any route: a page learns why.
TEST_F(FramedBodies, RefusalsCanBeReadByPages) {
  const std::string origin = "http://localhost:3000";
  const auto may_read = [&](const Answer& answer) {
    const auto found = answer.headers.find("access-control-allow-origin");
    return found != answer.headers.end() && found->second == origin;
  };
  for (const int port : ports()) {
    for (const auto& [request, status] : std::initializer_list<std::pair<std::string, int>>{
             {head(fmt::format("Origin: {}\r\nContent-Length: 2\r\n", origin)) + "{}", 400},
             {head(fmt::format("Origin: {}\r\nContent-Length: 2\r\n", origin), "no") + "{}", 401},
             {head(fmt::format("Origin: {}\r\nContent-Length: 2\r\n", origin), kKey, "/no") + "{}",
              404},
             {head(fmt::format("Origin: {}\r\nContent-Length: 1099511627776\r\n", origin)), 413},
             {head(fmt::format("Origin: {}\r\nContent-Length: {}\r\n", origin, ask().size())) +
                  ask(),
              200}}) {
      Client c(port);
      c.send(request);
      const Answer answer = c.read_answer();
      EXPECT_EQ(answer.status, status) << answer.body;
      EXPECT_TRUE(may_read(answer)) << status;
    }
  }
}

// HTTP-08: nothing where no page may ask.
TEST(Pages, MayNotAskWhereNoneMay) {
  server::AppOptions options;
  options.cors_origin = "";
  options.api_keys = {kKey};
  Served served(serve_script(Script::script, "S"), options);
  const std::string origin = "Origin: http://app.test\r\n";
  Client preflight = served.client();
  preflight.send(
      "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: t\r\n" + origin +
      "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: x-title\r\n\r\n");
  const std::string key = std::string("Authorization: Bearer ") + kKey + "\r\n";
  for (const Answer& answer :
       {preflight.read_answer(),
        served.post(kChat, "{}", origin),
        served.post(kChat, "{}", origin + key),
        served.get("/nothing", origin + key),
        served.get("/health", origin)}) {
    for (const auto& [name, value] : answer.headers) {
      EXPECT_FALSE(name.starts_with("access-control")) << name << value;
    }
  }
}

}  // namespace

}  // namespace quince::test
