// The gateway through real sockets: what it passes on, and whom it lets in.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "server/fault_upstream.h"
#include "server/gatewayed.h"
#include "server/served.h"

namespace quince::test {

namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using namespace quince::server;

std::string upstream(
    const std::string& name, const FaultUpstream& box, const std::string& more = "") {
  return "[upstreams." + name + "]\nurl = \"" + box.url() +
         "\"\nconnect_timeout = 0.5\nfirst_byte_timeout = 0.5\nidle_timeout = 0.5\n" + more;
}

std::string model(
    const std::string& name, const std::string& upstreams, const std::string& more = "") {
  return "[models." + name + "]\nupstreams = [" + upstreams + "]\n" + more;
}

std::string code_of(const Answer& answer) {
  return std::string(answer.json().at("error").at("code").as_string());
}

TEST(Gateway, PassesRequestsOnAsTheyCame) {
  FaultUpstream box;
  Gatewayed gateway(
      upstream("box", box, "key = \"upstream-key\"\n") +
      model("m", R"({ name = "box", model = "fine" })", "aliases = [\"nick\"]\n"));
  for (const std::string path :
       {"/v1/chat/completions",
        "/v1/completions",
        "/v1/embeddings",
        "/v1/responses",
        "/v1/messages",
        "/v1/anything/else"}) {
    const Answer answer = gateway.post(
        path + "?a=b%20c", chat("nick"), "Authorization: Bearer mine\r\nX-Mine: 1\r\n");
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.json().at("ok"), true);
    const std::string seen = box.last_request();
    EXPECT_THAT(seen, testing::StartsWith("POST " + path + "?a=b%20c HTTP/1.1\r\n"));
    EXPECT_THAT(seen, testing::EndsWith("\r\n\r\n" + chat("fine")));
    EXPECT_THAT(seen, HasSubstr("Authorization: Bearer upstream-key\r\n"));
    EXPECT_THAT(seen, HasSubstr("X-Mine: 1\r\n"));
    EXPECT_THAT(seen, Not(HasSubstr("mine\r\n")));
  }
  EXPECT_EQ(box.connections, 1) << "the connection is kept";
}

TEST(Gateway, StreamsAsTheEventsCome) {
  FaultUpstream box;
  Gatewayed gateway(upstream("box", box) + model("slow_stream", "\"box\""));
  Client c = gateway.client();
  c.post("/v1/chat/completions", chat("slow_stream", true));
  const Answer head = c.read_head();
  EXPECT_EQ(head.status, 200);
  EXPECT_THAT(head.headers.at("content-type"), HasSubstr("text/event-stream"));
  std::vector<std::string> chunks;
  while (const auto chunk = c.read_chunk()) {
    chunks.push_back(*chunk);
    EXPECT_THAT(*chunk, testing::EndsWith("\n\n")) << "whole events only";
  }
  EXPECT_GE(chunks.size(), 5U) << "not gathered";
  EXPECT_THAT(chunks.front(), HasSubstr("\"t1\""));
  EXPECT_THAT(chunks.back(), HasSubstr("[DONE]"));
  EXPECT_EQ(
      gateway.metric(R"(quince:upstream_requests_total{upstream="box",outcome="answered"})"), 1);
}

TEST(Gateway, ListsItsModels) {
  FaultUpstream box;
  Gatewayed gateway(upstream("box", box) + model("m", "\"box\"", "aliases = [\"nick\"]\n"));
  const auto list = gateway.get("/v1/models").json();
  EXPECT_EQ(list.at("data").as_array().size(), 2U);
  EXPECT_EQ(list.at("data").at(0).at("id"), "m");
  EXPECT_EQ(gateway.get("/v1/models/nick").json().at("id"), "nick");
  EXPECT_EQ(gateway.get("/v1/models/none").status, 404);
  const Answer unknown = gateway.post("/v1/chat/completions", chat("none"));
  EXPECT_EQ(unknown.status, 404);
  EXPECT_THAT(unknown.body, HasSubstr("there are m, nick"));
  EXPECT_EQ(gateway.post("/v1/chat/completions", "{}").status, 400);
  EXPECT_EQ(gateway.post("/v1/chat/completions", "no json").status, 400);
  EXPECT_EQ(gateway.post("/v1/x/../y", chat("m")).status, 404);
  EXPECT_EQ(gateway.post("/v1/x/%2e%2e/y", chat("m")).status, 404);
  EXPECT_EQ(gateway.get("/health").status, 200);
  EXPECT_EQ(gateway.post("/tokenize", R"({"content":"x"})").status, 404);
}

TEST(Gateway, KeysAndTheirLimits) {
  FaultUpstream box;
  const std::string hash = gateway::hash_secret("the-key-of-alice");
  const std::string other = gateway::hash_secret("the-key-of-bob-1");
  Gatewayed gateway(
      "[keys.alice]\nhash = \"" + hash +
      "\"\nrpm = 3\nmodels = [\"fine\", \"nick\"]\n[keys.bob]\nhash = \"" + other +
      "\"\ntpm = 20\n" + upstream("box", box) + model("fine", "\"box\"") +
      model("fine_stream", "\"box\"", "aliases = [\"nick\"]\n") + model("slow", "\"box\""));
  const std::string alice = "Authorization: Bearer the-key-of-alice\r\n";
  const std::string bob = "x-api-key: the-key-of-bob-1\r\n";
  EXPECT_EQ(gateway.post("/v1/chat/completions", chat("fine")).status, 401);
  EXPECT_EQ(
      gateway.post("/v1/chat/completions", chat("fine"), "Authorization: Bearer x\r\n").status,
      401);
  const Answer forbidden = gateway.post("/v1/chat/completions", chat("slow"), alice);
  EXPECT_EQ(forbidden.status, 403);
  EXPECT_EQ(code_of(forbidden), "model_not_allowed");
  EXPECT_EQ(gateway.get("/v1/models", alice).json().at("data").as_array().size(), 3U);
  EXPECT_EQ(gateway.post("/v1/chat/completions", chat("fine"), alice).status, 200);
  EXPECT_EQ(gateway.post("/v1/chat/completions", chat("nick", true), alice).status, 200);
  EXPECT_EQ(gateway.post("/v1/chat/completions", chat("fine"), alice).status, 200);
  const Answer limited = gateway.post("/v1/messages", chat("fine"), alice);
  EXPECT_EQ(limited.status, 429);
  EXPECT_EQ(limited.json().at("error").at("type"), "rate_limit_error");
  EXPECT_GE(std::stoi(limited.headers.at("retry-after")), 10);
  // 7 + 2 tokens each: after three there is nothing left.
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(gateway.post("/v1/chat/completions", chat("fine"), bob).status, 200);
    EXPECT_TRUE(soon([&] {
      return gateway.metric(R"(quince:key_tokens_total{key="bob",kind="prompt"})", bob) ==
             7 * (i + 1);
    }));
  }
  EXPECT_EQ(gateway.post("/v1/chat/completions", chat("fine"), bob).status, 429);
  EXPECT_EQ(
      gateway.metric(R"(quince:key_tokens_total{key="alice",kind="prompt"})", bob), 7 + 11 + 7);
  EXPECT_EQ(gateway.metric(R"(quince:key_tokens_total{key="alice",kind="generation"})", bob), 7);
  EXPECT_EQ(gateway.metric(R"(quince:key_refused_total{key="alice",reason="rpm"})", bob), 1);
}

TEST(Gateway, OneAtATimeTheRestWaitsOrIsTurnedAway) {
  FaultUpstream box;
  Gatewayed gateway(
      upstream("box", box) + model("slow", "\"box\"", "concurrency = 1\nqueue = 2\n"));
  std::vector<Client> clients;
  for (int i = 0; i < 12; ++i) {
    clients.push_back(gateway.client());
    clients.back().post("/v1/chat/completions", chat("slow"));
  }
  std::map<int, int> statuses;
  for (Client& client : clients) {
    const Answer answer = client.read_answer();
    ++statuses[answer.status];
    if (answer.status == 503) {
      EXPECT_EQ(code_of(answer), "queue_full");
      EXPECT_TRUE(answer.headers.contains("retry-after"));
    }
  }
  EXPECT_GE(statuses[200], 3);
  EXPECT_GE(statuses[503], 1);
  EXPECT_EQ(statuses[200] + statuses[503], 12);
  EXPECT_EQ(box.most_at_once, 1);
}

TEST(Gateway, WaitsNoLongerThanItMay) {
  FaultUpstream box;
  Gatewayed gateway(
      "[gateway]\ndeadline = 0.4\n" + upstream("box", box, "total_timeout = 60\n") +
      model("hang", "\"box\"", "concurrency = 1\nqueue_timeout = 0.1\n"));
  Client first = gateway.client();
  first.post("/v1/chat/completions", chat("hang"));
  ASSERT_TRUE(soon([&] { return box.requests == 1; }));
  const Answer second = gateway.post("/v1/chat/completions", chat("hang"));
  EXPECT_EQ(second.status, 503);
  EXPECT_EQ(code_of(second), "queue_timeout");
  const Answer answer = first.read_answer(false, 2);
  EXPECT_EQ(answer.status, 504);
  EXPECT_THAT(answer.body, HasSubstr("time was over"));
}

TEST(Gateway, AClientThatLeavesEndsTheRequest) {
  FaultUpstream box;
  Gatewayed gateway(
      upstream("box", box, "") + model("hang", "\"box\"") + model("hang_stream", "\"box\"") +
      model("flood_stream", "\"box\""));
  int left = 0;
  for (const std::string name : {"hang", "hang_stream", "flood_stream"}) {
    Client c = gateway.client();
    c.post("/v1/chat/completions", chat(name, true));
    if (name == "hang") {
      ASSERT_TRUE(soon([&] { return box.at_once == 1; }));
    } else {
      c.read_head();
    }
    c.close();
    ++left;
    EXPECT_TRUE(soon([&] { return box.left == left; }, 0.4)) << name << ": before any time-out";
  }
  EXPECT_TRUE(soon([&] {
    return gateway.metric(
               R"(quince:upstream_requests_total{upstream="box",outcome="abandoned"})") == 3;
  }));
  EXPECT_EQ(gateway.metric(R"(quince:upstream_requests_running{upstream="box"})"), 0);
  EXPECT_EQ(gateway.metric(R"(quince:model_requests_running{model="hang"})"), 0);
}

// A client that does not read holds the upstream back instead of filling memory.
TEST(Gateway, SlowReadersHoldTheUpstreamBack) {
  FaultUpstream box;
  Gatewayed gateway(upstream("box", box) + model("flood_stream", "\"box\""));
  Client c(gateway.server->port(), 16 << 10);
  c.post("/v1/chat/completions", chat("flood_stream", true));
  c.read_head();
  size_t before = 0;
  EXPECT_TRUE(soon([&] {
    const size_t now = box.sent;
    ::usleep(100000);
    const bool still = now > 0 && now == box.sent;
    before = now;
    return still;
  }));
  EXPECT_LT(before, size_t{16} << 20) << "what the system's own buffers hold";
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(c.read_chunk());
  }
}

TEST(Gateway, ReloadsWhenTheFileChanges) {
  FaultUpstream box;
  const std::string base = upstream("box", box) + model("fine", "\"box\"");
  Gatewayed gateway(base);
  EXPECT_EQ(gateway.post("/v1/chat/completions", chat("fine")).status, 200);
  gateway.write(
      "[keys.alice]\nhash = \"" + gateway::hash_secret("the-key-of-alice") + "\"\n" + base);
  EXPECT_TRUE(
      soon([&] { return gateway.post("/v1/chat/completions", chat("fine")).status == 401; }));
  const std::string alice = "Authorization: Bearer the-key-of-alice\r\n";
  EXPECT_EQ(gateway.post("/v1/chat/completions", chat("fine"), alice).status, 200);
  const size_t lines = gateway.lines().size();
  gateway.write("[keys.alice]\nhash = 7\n");
  EXPECT_TRUE(soon([&] { return gateway.lines().size() == lines + 1; }));
  ::usleep(100000);
  ASSERT_EQ(gateway.lines().size(), lines + 1) << "said once";
  EXPECT_THAT(gateway.lines().back(), HasSubstr("all stays as it was"));
  EXPECT_THAT(gateway.lines().back(), HasSubstr(":2: keys.alice.hash"));
  EXPECT_EQ(gateway.post("/v1/chat/completions", chat("fine"), alice).status, 200);
  EXPECT_EQ(gateway.post("/v1/chat/completions", chat("fine")).status, 401);
  gateway.write(base);
  EXPECT_FALSE(gateway.service->reload()) << "it would let everybody in";
  EXPECT_THAT(gateway.lines().back(), HasSubstr("no keys any more"));
  std::filesystem::remove(gateway.path);
  EXPECT_FALSE(gateway.service->reload());
  EXPECT_EQ(gateway.post("/v1/chat/completions", chat("fine"), alice).status, 200);
}

// Requests that are under way end as they began.
TEST(Gateway, ReloadingLeavesWhatRuns) {
  FaultUpstream box;
  FaultUpstream other;
  Gatewayed gateway(upstream("box", box) + model("slow_stream", "\"box\""));
  Client c = gateway.client();
  c.post("/v1/chat/completions", chat("slow_stream", true));
  c.read_head();
  gateway.write(upstream("box", other) + model("slow_stream", "\"box\""));
  ASSERT_TRUE(soon([&] { return !gateway.lines().empty(); }));
  std::string text;
  while (const auto chunk = c.read_chunk()) {
    text += *chunk;
  }
  EXPECT_THAT(text, HasSubstr("[DONE]"));
  EXPECT_EQ(gateway.post("/v1/chat/completions", chat("slow_stream", true)).status, 200);
  EXPECT_EQ(box.requests, 1);
  EXPECT_EQ(other.requests, 1);
}

TEST(Gateway, SpreadsByWeight) {
  FaultUpstream a;
  FaultUpstream b;
  Gatewayed gateway(
      upstream("a", a) + upstream("b", b) + model("fine", R"({ name = "a", weight = 3 }, "b")"));
  for (int i = 0; i < 40; ++i) {
    ASSERT_EQ(gateway.post("/v1/chat/completions", chat("fine")).status, 200);
  }
  EXPECT_EQ(a.requests, 30);
  EXPECT_EQ(b.requests, 10);
}

TEST(Gateway, FallsBackAsTheModelSays) {
  FaultUpstream box;
  const auto with = [&](const std::string& name, const std::string& more) {
    return model(name, "\"box\"", "fallbacks = [\"fine\"]\n" + more);
  };
  Gatewayed gateway(
      upstream("box", box, "breaker = { failures = 1000 }\n") + with("status500", "") +
      model("status503", "\"box\"", "fallbacks = [\"nick\"]\n") + with("too_long", "") +
      with("hang", "latency_limit = 0.1\n") + with("late_stream", "latency_limit = 0.1\n") +
      with("garbage", "fallback_on = [\"context\"]\n") +
      model("fine", "\"box\"", "aliases = [\"nick\"]\n"));
  for (const std::string name : {"status500", "too_long", "hang", "late_stream"}) {
    const auto begin = std::chrono::steady_clock::now();
    const Answer answer = gateway.post("/v1/chat/completions", chat(name));
    EXPECT_EQ(answer.status, 200) << name << answer.body;
    EXPECT_EQ(answer.json().at("ok"), true) << name;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(400)) << name;
    EXPECT_EQ(gateway.metric("quince:fallbacks_total{model=\"" + name + "\",to=\"fine\"}"), 1)
        << name;
  }
  EXPECT_EQ(gateway.post("/v1/chat/completions", chat("garbage")).status, 502);
  const Answer by_alias = gateway.post("/v1/chat/completions", chat("status503"));
  EXPECT_EQ(by_alias.status, 200) << by_alias.body;
}

TEST(Gateway, WhatIsTooLongAndHasNoFallbackIsSaidAsTheUpstreamSaidIt) {
  FaultUpstream box;
  Gatewayed gateway(upstream("box", box) + model("too_long", "\"box\""));
  const Answer answer = gateway.post("/v1/chat/completions", chat("too_long"));
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(code_of(answer), "context_length_exceeded");
}

TEST(Gateway, HealthChecksKeepRequestsAway) {
  FaultUpstream well;
  FaultUpstream ill;
  ill.set_mode("status500");
  const std::string check = "health = \"/health\"\nhealth_interval = 0.02\n";
  Gatewayed gateway(
      upstream("well", well, check) + upstream("ill", ill, check) +
      model("fine", R"("well", "ill")"));
  const std::string healthy = R"(quince:upstream_healthy{upstream="ill"})";
  // A health check has no body, which the upstream answers well: so it is stopped.
  ill.stop();
  ASSERT_TRUE(soon([&] { return gateway.metric(healthy) == 0; }));
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(gateway.post("/v1/chat/completions", chat("fine")).status, 200);
  }
  EXPECT_EQ(
      gateway.metric(R"(quince:upstream_requests_total{upstream="ill",outcome="not_reached"})"), 0);
  ill.set_mode("");
  ill.restart();
  EXPECT_TRUE(soon([&] { return gateway.metric(healthy) == 1; }));
  EXPECT_TRUE(soon([&] {
    gateway.post("/v1/chat/completions", chat("fine"));
    return gateway.metric(R"(quince:upstream_requests_total{upstream="ill",outcome="answered"})") >
           0;
  }));
}

TEST(Gateway, StandsBesideAModelThatIsHere) {
  FaultUpstream box;
  const std::string hash = gateway::hash_secret("the-key-of-alice");
  Gatewayed gateway(
      "[keys.alice]\nhash = \"" + hash + "\"\nconcurrency = 1\n" + upstream("box", box) +
          model("fine", "\"box\"") + model("status500", "\"box\"", "fallbacks = [\"S\"]\n"),
      {},
      serve_script(Script::script, "S"));
  const std::string alice = "Authorization: Bearer the-key-of-alice\r\n";
  const auto models = gateway.get("/v1/models", alice).json();
  EXPECT_EQ(models.at("data").at(0).at("id"), "S");
  EXPECT_EQ(models.at("data").as_array().size(), 4U);  // its alias, and two elsewhere
  EXPECT_EQ(gateway.post("/v1/chat/completions", chat("fine"), alice).json().at("ok"), true);
  const Answer here = gateway.post("/v1/chat/completions", chat("S"), alice);
  EXPECT_EQ(text_of(here), kScriptText);
  EXPECT_EQ(gateway.post("/v1/chat/completions", chat("S")).status, 401);
  EXPECT_TRUE(soon([&] {
    return gateway.metric(R"(quince:key_tokens_total{key="alice",kind="generation"})", alice) > 2;
  })) << "counted as well";
  const Answer fallback = gateway.post("/v1/chat/completions", chat("status500"), alice);
  EXPECT_EQ(fallback.status, 200) << fallback.body;
  EXPECT_EQ(text_of(fallback), kScriptText);
  const Answer streamed_fallback =
      gateway.post("/v1/chat/completions", chat("status500", true), alice);
  EXPECT_EQ(streamed(streamed_fallback).texts.at(0), kScriptText);
  EXPECT_TRUE(soon(
      [&] { return gateway.metric(R"(quince:key_requests_running{key="alice"})", alice) == 0; }));
}

TEST(Gateway, TheModelThatIsHereHasFallbacksToo) {
  FaultUpstream box;
  EngineOptions engine;
  engine.max_running = 1;
  engine.max_waiting = 0;
  const auto local = serve_script(Script::majority, "M", engine);
  const std::string boxes = upstream("box", box) + model("fine", "\"box\"");
  const std::string table = "[models.M]\nfallbacks = [\"fine\"]\n";
  Gatewayed gateway(boxes + table, {}, local);
  EXPECT_EQ(gateway.get("/v1/models").json().at("data").as_array().size(), 3U);
  std::string text;
  for (int i = 0; i < 600; ++i) {
    text += "A ";
  }
  const auto ask =
      [&](const std::string& path, const std::string& fields, const std::string& named) {
        return gateway.post(path, "{" + named + fields + ", \"max_tokens\": 2}");
      };
  const auto message = [](const std::string& said) {
    return R"("messages": [{"role": "user", "content": ")" + said + "\"}]";
  };
  int fell = 0;
  for (const std::string& named : {R"("model": "M",)", R"("model": "other-name",)", ""}) {
    EXPECT_EQ(text_of(ask("/v1/chat/completions", message("AAAB"), named)), "AA");
    const std::vector<std::pair<std::string, std::string>> long_ones = {
        {"/v1/chat/completions", message(text)},
        {"/v1/completions", "\"prompt\": \"" + text + "\""},
        {"/v1/responses", "\"input\": \"" + text + "\""},
        {"/v1/messages", message(text)},
        {"/v1/chat/completions", message(text) + ", \"stream\": true"}};
    for (const auto& [path, fields] : long_ones) {
      const Answer answer = ask(path, fields, named);
      EXPECT_EQ(answer.status, 200) << path << answer.body;
      EXPECT_THAT(box.last_request(), HasSubstr("POST " + path + " "));
      EXPECT_THAT(box.last_request(), HasSubstr(R"("model")")) << named;
      EXPECT_THAT(box.last_request(), HasSubstr(R"("fine")")) << named;
      ++fell;
    }
  }
  const std::string count = R"(quince:fallbacks_total{model="M",to="fine"})";
  EXPECT_EQ(gateway.metric(count), fell);
  // What is wrong with a request is so everywhere.
  EXPECT_EQ(ask("/v1/chat/completions", R"("messages": 3)", "").status, 400);
  EXPECT_EQ(ask("/v1/chat/completions", message("A"), R"("model": "nobody",)").status, 404);
  EXPECT_EQ(gateway.metric(count), fell);
  // Busy, which can also be left to the client.
  SamplingParams params;
  params.max_tokens = 100000;
  params.ignore_eos = true;
  auto running = std::make_optional(local->engine->submit({266, 266, 267}, params));
  const Answer elsewhere = ask("/v1/chat/completions", message("A"), "");
  EXPECT_EQ(elsewhere.json().at("ok"), true) << elsewhere.body;
  gateway.write(boxes + table + "fallback_on = [\"context\"]\n");
  EXPECT_TRUE(soon([&] { return ask("/v1/chat/completions", message("A"), "").status == 503; }));
  EXPECT_EQ(ask("/v1/chat/completions", message(text), "").status, 200);
  running.reset();
  EXPECT_TRUE(soon([&] { return ask("/v1/chat/completions", message("A"), "").status == 200; }));
}

}  // namespace

}  // namespace quince::test
