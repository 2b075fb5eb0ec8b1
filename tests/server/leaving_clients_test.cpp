// Clients that go away, in every state that a request can be in, and more of them than there is
// room for.
#include <chrono>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "server/served.h"

namespace quince::test {

namespace {

namespace json = boost::json;
using testing::HasSubstr;

constexpr const char* kChat = "/v1/chat/completions";

// A body without an end, of each route that generates.
const std::map<std::string, std::string>& endless() {
  static const std::map<std::string, std::string> bodies = {
      {kChat, R"("messages":[{"role":"user","content":"x"}])"},
      {"/v1/completions", R"("prompt":"")"},
      {"/completion", R"("prompt":"")"},
      {"/v1/responses", R"("input":"x")"},
      {"/v1/messages", R"("messages":[{"role":"user","content":"x"}],"max_tokens":100000)"}};
  return bodies;
}

class Leaving : public testing::Test {
 protected:
  static Served& served() {
    static Served server([] {
      EngineOptions engine;
      engine.context_length = 200000;
      engine.prefill_chunk = 16;  // so that prompts take long
      return serve_script(Script::loop, "L", engine);
    }());
    return server;
  }
  static std::string body(const std::string& route, bool stream) {
    return "{" + endless().at(route) + (stream ? R"(,"stream":true})" : "}");
  }
  // Nothing runs any more, and nothing is computed.
  static void expect_quiet(const std::string& what) {
    EXPECT_TRUE(soon([&] { return served().stats().running + served().stats().waiting == 0; }, 1))
        << what;
    EXPECT_EQ(served().metric("quince:num_requests_running"), 0) << what;
    const double tokens = served().metric("quince:generation_tokens_total");
    ::usleep(50000);
    EXPECT_EQ(served().metric("quince:generation_tokens_total"), tokens) << what;
  }
  static void leave(Client& client, bool reset) {
    reset ? client.reset() : client.close();
  }
};

// HTTP-01.
TEST_F(Leaving, WhileAnswersAreWritten) {
  for (const auto& [route, fields] : endless()) {
    for (const bool reset : {true, false}) {
      Client stream = served().client();
      stream.post(route, body(route, true));
      stream.read_head();
      for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(stream.read_chunk()) << route;
      }
      leave(stream, reset);
      expect_quiet(route + " in a stream");
      Client whole = served().client();
      whole.post(route, body(route, false));
      ASSERT_TRUE(soon([&] { return served().stats().running == 1; })) << route;
      ::usleep(20000);
      leave(whole, reset);
      expect_quiet(route + " before the answer");
    }
  }
}

TEST_F(Leaving, WhileAPromptIsComputed) {
  std::string ids;
  for (int i = 0; i < 50000; ++i) {
    ids += fmt::format("{}{}", i == 0 ? "" : ",", 269 + i % 3);
  }
  for (const char* stream : {"false", "true"}) {
    for (const bool reset : {true, false}) {
      const double before = served().metric("quince:generation_tokens_total");
      Client client = served().client();
      client.post(
          "/v1/completions",
          fmt::format(R"({{"prompt":[{}],"max_tokens":5,"stream":{}}})", ids, stream));
      ASSERT_TRUE(soon([&] { return served().stats().running == 1; }));
      leave(client, reset);
      expect_quiet("in a prompt");
      EXPECT_EQ(served().metric("quince:generation_tokens_total"), before) << "too quick a prompt";
    }
  }
}

TEST_F(Leaving, ManyAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 50; ++i) {
        Client client = served().client();
        client.post(kChat, body(kChat, (i + t) % 2 == 0));
        if (i % 3 == 0) {
          client.readable(0.01);
        }
        leave(client, i % 4 < 2);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  expect_quiet("two hundred");
  EXPECT_TRUE(soon([&] { return served().app.active().list().empty(); }));
  Client alive = served().client();
  alive.post(kChat, R"({"messages":[{"role":"user","content":"x"}],"max_tokens":3})");
  EXPECT_EQ(text_of(alive.read_answer()), "x y z");
}

// HTTP-12: all of them come at the same moment, then some leave.
TEST(MoreThanThereIsRoomFor, AreRefusedAtOnce) {
  EngineOptions engine;
  engine.max_running = 1;
  engine.max_waiting = 2;
  engine.context_length = 200000;
  Served served(serve_script(Script::loop, "L", engine));
  const std::string endless_one = R"({"messages":[{"role":"user","content":"x"}]})";
  std::vector<Client> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(served.client());
  }
  const auto begin = std::chrono::steady_clock::now();
  for (Client& client : clients) {
    client.post(kChat, endless_one);
  }
  // Five are told; three are not, for they run or wait.
  std::vector<size_t> kept;
  int refused = 0;
  ASSERT_TRUE(soon([&] { return served.app.active().list().size() == 3; }));
  for (size_t i = 0; i < clients.size(); ++i) {
    if (!clients[i].readable(0.2)) {
      kept.push_back(i);
      continue;
    }
    const Answer answer = clients[i].read_answer();
    EXPECT_EQ(answer.status, 503) << answer.body;
    EXPECT_GE(std::stoi(answer.headers.at("retry-after")), 1);
    ++refused;
  }
  EXPECT_EQ(refused, 5);
  ASSERT_EQ(kept.size(), 3u);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  EXPECT_EQ(served.get("/health").status, 200);
  EXPECT_EQ(served.metric("quince:num_requests_running"), 1);
  EXPECT_EQ(served.stats().waiting, 2);
  // They leave; their places are others' at once.
  for (const size_t i : kept) {
    clients[i].close();
  }
  ASSERT_TRUE(soon([&] { return served.app.active().list().empty(); }));
  ASSERT_TRUE(soon([&] { return served.stats().running + served.stats().waiting == 0; }));
  std::vector<Client> others;
  for (int i = 0; i < 3; ++i) {
    others.push_back(served.client());
    others.back().post(kChat, R"({"messages":[{"role":"user","content":"x"}],"max_tokens":300})");
  }
  for (Client& other : others) {
    EXPECT_EQ(other.read_answer().json().at("usage").at("completion_tokens"), 300);
  }
  EXPECT_EQ(served.metric("quince:num_requests_running"), 0);
}

}  // namespace

}  // namespace quince::test
