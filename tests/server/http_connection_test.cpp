// Clients that end their side of the connection: who reads on is answered, who is gone is seen.
#include "server/http_connection.h"

#include <filesystem>

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "server/http_script.h"

namespace quince::server {

namespace {

using test::Client;
using test::HttpTest;
using test::soon;

class HalfClosed : public HttpTest {};

// Answers that take time show what is sent ahead; the client must not see a difference.
TEST_F(HalfClosed, AnswersStillCome) {
  start();
  for (const std::string version : {"1.1", "1.0"}) {
    for (const std::string path : {"/late", "/slow", "/quick", "/refused"}) {
      handler_.script.reset();
      Client c = client();
      c.send(std::string("GET ").append(path).append(" HTTP/").append(version).append(
          "\r\nHost: t\r\n\r\n"));
      c.end_writing();
      if (path == "/late") {
        ASSERT_TRUE(soon([&] { return handler_.script.alive == 1; }));
        ::usleep(100000);  // several rounds of looking whether it is there
        EXPECT_EQ(handler_.script.alive, 1) << version;
        handler_.script.give("here", true);
      }
      const auto answer = c.read_answer();
      EXPECT_EQ(answer.status, path == "/refused" ? 401 : 200) << path << version;
      const std::string want = path == "/late"      ? "here"
                               : path == "/refused" ? "{}"
                                                    : "GET " + path + " [none] ";
      EXPECT_EQ(answer.body, want);
      EXPECT_TRUE(c.closed_by_server(1)) << path << version;
    }
  }
  EXPECT_TRUE(soon([&] { return server_->connections() == 0; }));
}

TEST_F(HalfClosed, TheAnswerSaysThatItIsTheLast) {
  start();
  Client c = client();
  c.get("/late");
  c.end_writing();
  ASSERT_TRUE(soon([&] { return handler_.script.alive == 1; }));
  ::usleep(20000);
  handler_.script.give("here", true);
  EXPECT_EQ(c.read_answer().headers.at("connection"), "close");
}

TEST_F(HalfClosed, StreamsStillCome) {
  start();
  for (const std::string version : {"1.1", "1.0"}) {
    handler_.script.reset();
    Client c = client();
    c.send("GET /stream HTTP/" + version + "\r\nHost: t\r\n\r\n");
    c.end_writing();
    ASSERT_TRUE(soon([&] { return handler_.script.alive == 1; }));
    handler_.script.give("one");
    ::usleep(100000);
    EXPECT_EQ(handler_.script.alive, 1);
    handler_.script.give("two", true);
    const std::string body = c.read_answer().body;
    EXPECT_LT(body.find("one"), body.find("two"));
    EXPECT_THAT(body, testing::EndsWith("two"));
    EXPECT_TRUE(c.closed_by_server(1));
  }
}

TEST_F(HalfClosed, AllRequestsBeforeItAreAnswered) {
  start();
  Client c = client();
  for (int i = 0; i < 5; ++i) {
    c.post("/slow", "n" + std::to_string(i));
  }
  c.end_writing();
  for (int i = 0; i < 5; ++i) {
    const auto answer = c.read_answer();
    EXPECT_EQ(answer.body, "POST /slow [none] n" + std::to_string(i));
    EXPECT_EQ(answer.headers.at("connection"), i == 4 ? "close" : "keep-alive");
  }
  EXPECT_TRUE(c.closed_by_server(1));
}

TEST_F(HalfClosed, HalfARequestIsNone) {
  start();
  for (const std::string text :
       {"GET /x HTTP/1.1\r\nHo", "POST /x HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nabc"}) {
    Client c = client();
    c.send(text);
    c.end_writing();
    EXPECT_EQ(c.read_answer().status, 400) << text;
    EXPECT_TRUE(c.closed_by_server(1)) << text;
  }
  EXPECT_EQ(handler_.handled, 0);
}

TEST_F(HalfClosed, WhoClosesLaterIsSeen) {
  start();
  for (const std::string path : {"/late", "/stream"}) {
    for (const bool reset : {false, true}) {
      Client c = client();
      c.get(path);
      c.end_writing();
      ASSERT_TRUE(soon([&] { return handler_.script.alive == 1; }));
      ::usleep(60000);
      EXPECT_EQ(handler_.script.alive, 1);
      reset ? c.reset() : c.close();
      EXPECT_TRUE(soon([&] { return handler_.script.alive == 0; }, 2)) << path << reset;
    }
  }
  EXPECT_TRUE(soon([&] { return server_->connections() == 0; }));
}

TEST_F(HalfClosed, OverUnixSockets) {
  const std::string path = testing::TempDir() + "quince_half_" + std::to_string(::getpid());
  std::filesystem::remove(path);
  HttpServer server({.unix_socket = path}, handler_);
  server.start();
  {
    Client c(path);
    c.get("/late");
    c.end_writing();
    ASSERT_TRUE(soon([&] { return handler_.script.alive == 1; }));
    ::usleep(50000);
    handler_.script.give("here", true);
    EXPECT_EQ(c.read_answer().body, "here");
  }
  handler_.script.reset();
  Client c(path);
  c.get("/late");
  ASSERT_TRUE(soon([&] { return handler_.script.alive == 1; }));
  c.close();
  EXPECT_TRUE(soon([&] { return handler_.script.alive == 0; }, 1));
}

}  // namespace

}  // namespace quince::server
