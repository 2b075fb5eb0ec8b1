// Who gets in, and requests that two servers could understand in two ways.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "server/fault_upstream.h"
#include "server/gatewayed.h"
#include "server/routes.h"

namespace quince::test {

namespace {

using testing::HasSubstr;
using testing::Not;
using namespace quince::server;

const std::string kSecret = "the-key-of-alice";

std::string config_of(const FaultUpstream& box) {
  static const std::string hash = gateway::hash_secret(kSecret);
  return "[keys.alice]\nhash = \"" + hash + "\"\n[upstreams.box]\nurl = \"" + box.url() +
         "\"\nkey = \"upstream-secret\"\n[models.fine]\nupstreams = [\"box\"]\n"
         "[models.status500]\nupstreams = [\"box\"]\n[models.cut_stream]\nupstreams = [\"box\"]\n";
}

std::vector<std::string> odd_targets() {
  std::vector<std::string> targets{
      "/",
      "*",
      "//",
      "//health",
      "/HEALTH",
      "/health/x",
      "/healthx",
      "/health%2f..%2fv1%2fmodels",
      "/health/../v1/models",
      "/v1/../health/../metrics",
      "/v1/models?x=/health",
      "/v1//models",
      "/%2e%2e/metrics",
      "/health;x",
      "/health#x",
      "/v1/health/../models",
      "http://x/v1/models",
      "http://x/metrics",
      "HTTP://X/metrics",
      "https://x",
      "http://health/v1/models",
      "/nothing",
      "/v1/nothing",
      "/v1/chat/completions/",
      "/%00",
      "/metrics%00/health"};
  for (const Route& route : routes()) {
    if (!route.open) {
      std::string path(route.path);
      if (const size_t brace = path.find('{'); brace != std::string::npos) {
        path.replace(brace, path.find('}') - brace + 1, "health");
      }
      targets.push_back(path);
      targets.push_back("http://localhost" + path);
    }
  }
  return targets;
}

TEST(Security, NothingButHealthAndThePageWithoutAKey) {
  FaultUpstream box;
  Gatewayed gateway(config_of(box));
  const std::vector<std::string> keys = {
      "",
      "Authorization: Bearer wrong\r\n",
      "Authorization: " + kSecret + "\r\n",
      "Authorization: Bearer \r\n",
      "x-api-key: \r\n",
      "x-api-key: " + kSecret + "x\r\n"};
  int tried = 0;
  for (const std::string& target : odd_targets()) {
    for (const std::string method :
         {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "TRACE", "OPTIONS", "BREW"}) {
      const std::string& key = keys[static_cast<size_t>(tried++) % keys.size()];
      Client c = gateway.client();
      const std::string body = method == "POST" ? chat("fine") : "";
      c.send(
          method + " " + target + " HTTP/1.1\r\nHost: x\r\n" + key +
          "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
      Answer head = c.read_head();
      // The page is open, so that somebody can type the key into it: it is the same for everybody.
      const bool page = target == "/" || target == "//" || target == "https://x";
      if (page && (method == "GET" || method == "HEAD")) {
        EXPECT_EQ(head.status, 200) << method << " " << target;
        EXPECT_EQ(head.headers["content-type"], "text/html; charset=utf-8");
        continue;
      }
      EXPECT_TRUE(head.status == 401 || head.status == 400)
          << method << " " << target << " " << head.status;
    }
  }
  EXPECT_GT(tried, 300);
  EXPECT_EQ(box.requests, 0);
  for (const std::string target :
       {"/health", "/v1/health", "http://anyhost/health", "/health?x=y"}) {
    Client c = gateway.client();
    c.send("GET " + target + " HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_EQ(c.read_answer().status, 200) << target;
  }
}

TEST(Security, APreflightTellsNothing) {
  FaultUpstream box;
  Gatewayed gateway(config_of(box));
  Client c = gateway.client();
  c.send("OPTIONS /v1/models HTTP/1.1\r\nHost: x\r\nOrigin: http://localhost:3000\r\n\r\n");
  const Answer answer = c.read_answer();
  EXPECT_EQ(answer.status, 204);
  EXPECT_EQ(answer.body, "");
}

TEST(Security, WithTheKeyAnyFormOfTheTargetIsServed) {
  FaultUpstream box;
  Gatewayed gateway(config_of(box));
  for (const std::string target :
       {"/v1/models", "http://anyhost:99/v1/models", "HTTP://h/v1/models?a=b"}) {
    Client c = gateway.client();
    c.send(
        "GET " + target + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + kSecret + "\r\n\r\n");
    EXPECT_EQ(c.read_answer().status, 200) << target;
  }
}

// Everything that comes until the server closes, or nothing comes any more.
std::string all_of(Client& client) {
  std::string text;
  try {
    for (std::string more; !(more = client.read_some(0.3)).empty();) {
      text += more;
    }
  } catch (const std::runtime_error&) {
    text += "(open)";
  }
  return text;
}

int responses_in(const std::string& text) {
  int count = 0;
  for (size_t at = 0; (at = text.find("HTTP/1.1 ", at)) != std::string::npos; ++at) {
    ++count;
  }
  return count;
}

// Where a proxy in front would see one request and we two, or the other way round.
TEST(Security, RequestsWithTwoMeaningsAreRefusedAndTheConnectionEnds) {
  FaultUpstream box;
  Gatewayed gateway(config_of(box));
  const std::string key = "Host: x\r\nAuthorization: Bearer " + kSecret + "\r\n";
  const std::string start = "POST /v1/chat/completions HTTP/1.1\r\n" + key;
  const std::string smuggled = "GET /v1/models HTTP/1.1\r\n" + key + "\r\n";
  const std::vector<std::string> cases = {
      start + "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled,
      start + "Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\n" + smuggled,
      start + "Content-Length: 0\r\nContent-Length: 44\r\n\r\n" + smuggled,
      start + "Content-Length: 44\r\nContent-Length: 0\r\n\r\n" + smuggled,
      start + "Content-Length: 0, 44\r\n\r\n" + smuggled,
      start + "Content-Length: +0\r\n\r\n" + smuggled,
      start + "Content-Length: -1\r\n\r\n" + smuggled,
      start + "Content-Length: 0x0\r\n\r\n" + smuggled,
      start + "Content-Length: 99999999999999999999\r\n\r\n" + smuggled,
      start + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + smuggled,
      start + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + smuggled,
      start + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + smuggled,
      start + "Transfer-Encoding: identity\r\n\r\n" + smuggled,
      start + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" +
          smuggled,
      start + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + smuggled,
      start +
          "Transfer-Encoding:\x0b"
          "chunked\r\n\r\n0\r\n\r\n" +
          smuggled,
      start + "Transfer-Encoding: chunked\r\n\r\n0x1\r\nG\r\n0\r\n\r\n" + smuggled,
      start + "Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n" + smuggled,
      start + "Transfer-Encoding: chunked\r\n\r\n1\r\nGX\r\n0\r\n\r\n" + smuggled,
      "POST /v1/chat/completions HTTP/1.1\n" + key + "Content-Length: 0\r\n\r\n" + smuggled,
      start + "X: a\r\n\tTransfer-Encoding: chunked\r\n\tb\r\nContent-Length: zero\r\n\r\n" +
          smuggled,
      start + "X\x01: a\r\nContent-Length: 0\r\n\r\n" + smuggled,
      "POST  /v1/chat/completions HTTP/1.1\r\n" + key + "Content-Length: 0\r\n\r\n" + smuggled,
      "POST /v1/chat completions HTTP/1.1\r\n" + key + "Content-Length: 0\r\n\r\n" + smuggled,
      "POST /v1/chat/completions HTTP/1.1 x\r\n" + key + "Content-Length: 0\r\n\r\n" + smuggled};
  for (const std::string& text : cases) {
    Client c = gateway.client();
    c.send(text);
    const std::string answer = all_of(c);
    EXPECT_THAT(answer, testing::StartsWith("HTTP/1.1 400 ")) << text;
    EXPECT_THAT(answer, Not(HasSubstr("(open)"))) << text;
    EXPECT_EQ(responses_in(answer), 1) << text << "\n" << answer;
  }
  EXPECT_EQ(box.requests, 0);
}

// A header that goes on in the next line is one header, whoever reads it: the value has no line
// break when it is passed on, and one that frames the body frames it.
TEST(Security, FoldedHeadersDoNotReachTheUpstreamFolded) {
  FaultUpstream box;
  Gatewayed gateway(config_of(box));
  Client c = gateway.client();
  c.send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + kSecret +
      "\r\nX-Folded: a\r\n Injected: b\r\nContent-Length: " + std::to_string(chat("fine").size()) +
      "\r\n\r\n" + chat("fine"));
  const Answer answer = c.read_answer();
  if (answer.status == 200) {
    EXPECT_THAT(box.last_request(), Not(HasSubstr("\r\n Injected")));
    EXPECT_THAT(box.last_request(), Not(HasSubstr("\nInjected")));
  } else {
    EXPECT_EQ(answer.status, 400);
  }
}

TEST(Security, NoKeyAndNoPromptInLogsMetricsOrErrors) {
  FaultUpstream box;
  Gatewayed gateway(config_of(box));
  const std::string prompt = "a-very-private-prompt";
  const std::string key = "Authorization: Bearer " + kSecret + "\r\n";
  std::string seen;
  for (int i = 0; i < 12; ++i) {
    for (const std::string name : {"fine", "status500", "cut_stream", "none"}) {
      const std::string body =
          R"({"model":")" + name + R"(","messages":[{"role":"user","content":")" + prompt + "\"}]}";
      seen += gateway.post("/v1/chat/completions", body, key).body;
    }
  }
  seen += gateway.post("/v1/chat/completions", "{\"" + prompt, key).body;
  box.stop();
  seen += gateway.post("/v1/chat/completions", chat("fine"), key).body;
  gateway.write("[keys.alice]\nhash = \"" + kSecret + "\"\n");
  EXPECT_FALSE(gateway.service->reload());
  seen += gateway.get("/metrics", key).body;
  EXPECT_FALSE(gateway.lines().empty());
  for (const std::string& line : gateway.lines()) {
    seen += line;
  }
  for (const std::string& secret : {prompt, kSecret, std::string("upstream-secret")}) {
    EXPECT_THAT(seen, Not(HasSubstr(secret)));
  }
}

}  // namespace

}  // namespace quince::test
