#include "server/http.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <mutex>
#include <thread>

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "server/http_script.h"

namespace quince::server {

namespace {

using test::Client;
using test::HttpTest;
using test::soon;
using testing::HasSubstr;

TEST_F(HttpTest, OneConnectionServesManyRequests) {
  start();
  Client c = client();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(c.post("/a%20b?x=1&q=c+d%21", "body"));
    const auto answer = c.read_answer();
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, "POST /a b [c d!] body");
    EXPECT_EQ(answer.headers.at("connection"), "keep-alive");
    EXPECT_FALSE(answer.headers.contains("x-injected"));
  }
  c.send("GET /x HTTP/1.0\r\n\r\n");
  EXPECT_EQ(c.read_answer().body, "GET /x [none] ");
  EXPECT_TRUE(c.closed_by_server());
}

TEST_F(HttpTest, RequestsMayComeBeforeTheAnswersToEarlierOnes) {
  start();
  Client c = client();
  std::string all;
  for (int i = 0; i < 20; ++i) {
    all += "POST /slow" + std::string(i == 0 ? "" : std::to_string(i)) +
           " HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n\r\nabc";
  }
  c.send(all);
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(c.read_answer().body, HasSubstr(" abc"));
  }
}

TEST_F(HttpTest, HeadIsGetWithoutABody) {
  start();
  Client c = client();
  c.send("HEAD /x HTTP/1.1\r\nHost: t\r\n\r\n");
  const auto head = c.read_answer(true);
  EXPECT_EQ(head.headers.at("content-length"), "15");
  c.get("/y");
  EXPECT_EQ(c.read_answer().body, "GET /y [none] ");
}

// HTTP-05.
TEST_F(HttpTest, ChunkedBodiesInAnyCuts) {
  start();
  Client c = client();
  c.send("POST /c HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (const char letter : std::string("hello")) {
    c.send("1;ext=\"v\"\r\n");
    c.send(std::string(1, letter));
    c.send("\r\n");
  }
  c.send("0\r\nTrailer: x\r\n\r\n");
  EXPECT_EQ(c.read_answer().body, "POST /c [none] hello");
  c.send("POST /c HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (const char letter : std::string("0\r\n\r\n")) {
    c.send(std::string(1, letter));
    ::usleep(20000);  // each is read by itself
  }
  EXPECT_EQ(c.read_answer().body, "POST /c [none] ");
  c.send("POST /c HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello");
  EXPECT_EQ(c.read_answer().status, 400);
  EXPECT_TRUE(c.closed_by_server());
}

TEST_F(HttpTest, ExpectContinue) {
  start({.max_body = 100});
  Client c = client();
  c.send("POST /e HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(c.read_until("\r\n\r\n", 1), "HTTP/1.1 100 Continue\r\n\r\n");
  c.send("hello");
  EXPECT_EQ(c.read_answer().body, "POST /e [none] hello");
  // Refused without the body.
  c.send("POST /refused HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(c.read_answer().status, 401);
  EXPECT_TRUE(c.closed_by_server());
  Client large = client();
  large.send("POST /e HTTP/1.1\r\nHost: t\r\nContent-Length: 101\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(large.read_answer().status, 413);
  Client odd = client();
  odd.send("POST /e HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\nExpect: tea\r\n\r\n");
  EXPECT_EQ(odd.read_answer().status, 417);
  EXPECT_EQ(handler_.handled, 1);
}

TEST_F(HttpTest, Limits) {
  start({.max_header = 2000, .max_body = 1000});
  Client head = client();
  head.send("GET / HTTP/1.1\r\nHost: t\r\nX: " + std::string(4000, 'x') + "\r\n\r\n");
  EXPECT_EQ(head.read_answer().status, 431);
  Client body = client();
  body.send("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
  body.send("7d0\r\n" + std::string(2000, 'x') + "\r\n0\r\n\r\n");
  EXPECT_EQ(body.read_answer().status, 413);
  Client garbage = client();
  garbage.send("\x16\x03\x01 this is not HTTP\r\n\r\n");
  EXPECT_EQ(garbage.read_answer().status, 400);
  EXPECT_EQ(handler_.handled, 0);
}

// Many clients read nothing before they have sent all; Node.js's are such.
TEST_F(HttpTest, RefusalsReachThoseWhoSendAllFirst) {
  start({.max_body = size_t{16} << 20});
  for (const auto& [path, megabytes, status] :
       std::initializer_list<std::tuple<const char*, size_t, int>>{
           {"/large", 17, 413}, {"/refused", 15, 401}}) {
    Client c = client();
    EXPECT_TRUE(c.post(path, std::string(megabytes << 20, 'x'))) << path;
    EXPECT_EQ(c.read_answer().status, status);
    EXPECT_TRUE(c.closed_by_server()) << path;
  }
  EXPECT_EQ(handler_.handled, 0);
}

TEST_F(HttpTest, RefusedBodiesAreReadOnlySoLong) {
  start({.max_body = 1000, .body_time = std::chrono::milliseconds(200)});
  Client c = client();
  ASSERT_TRUE(c.send("POST /large HTTP/1.1\r\nHost: t\r\nContent-Length: 99999999999\r\n\r\n"));
  const auto begin = std::chrono::steady_clock::now();
  while (c.send(std::string(1000, 'x')) &&
         std::chrono::steady_clock::now() - begin < std::chrono::seconds(15)) {
    ::usleep(10000);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
}

// Two ways to say where a body ends: whoever believes the other one sees another request.
TEST_F(HttpTest, AmbiguousFramingIsRefused) {
  start();
  const std::string hidden = "0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: t\r\n\r\n";
  for (const std::string headers :
       {"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 6\r\n",
        "Content-Length: 6\r\nContent-Length: 5\r\n",
        "Content-Length: +6\r\n",
        "Content-Length: 0x6\r\n",
        "Content-Length: -1\r\n",
        "Content-Length : 6\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding\r\n : chunked\r\n"}) {
    Client c = client();
    c.send("POST /outer HTTP/1.1\r\nHost: t\r\n" + std::string(headers).append("\r\n") + hidden);
    const auto answer = c.read_answer();
    EXPECT_EQ(answer.status, 400) << headers << answer.body;
    EXPECT_TRUE(c.closed_by_server()) << headers;
  }
  EXPECT_EQ(handler_.handled, 0);
}

TEST_F(HttpTest, SlowRequestsAreGivenUp) {
  using std::chrono::milliseconds;
  start(
      {.header_time = milliseconds(100),
       .body_time = milliseconds(100),
       .idle_time = milliseconds(300)});
  Client head = client();
  head.send("GET / HT");
  Client body = client();
  body.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\nabc");
  Client idle = client();
  const auto before = std::chrono::steady_clock::now();
  for (Client* late : {&head, &body}) {
    const auto answer = late->read_answer();
    EXPECT_EQ(answer.status, 408);
    EXPECT_EQ(answer.headers.at("connection"), "close");
    EXPECT_TRUE(late->closed_by_server(2));
  }
  EXPECT_TRUE(idle.closed_by_server(2));
  EXPECT_GE(std::chrono::steady_clock::now() - before, milliseconds(200));
  EXPECT_TRUE(soon([&] { return server_->connections() == 0; }));
}

TEST_F(HttpTest, StreamsAreSentPieceByPiece) {
  start({.keep_alive = std::chrono::milliseconds(50)});
  Client c = client();
  c.get("/stream");
  const auto head = c.read_head(1);  // before there is anything to send
  EXPECT_EQ(head.headers.at("transfer-encoding"), "chunked");
  expect_pieces(c);
  EXPECT_TRUE(soon([&] { return handler_.script.alive == 0; }));
  c.get("/x");
  EXPECT_EQ(c.read_answer().status, 200);  // the connection goes on
}

// News that leaves nothing to send is no reason to be silent.
TEST_F(HttpTest, StreamsThatHoldBackStayAlive) {
  start({.keep_alive = std::chrono::milliseconds(60)});
  Client c = client();
  c.get("/stream");
  c.read_head();
  std::atomic<bool> over = false;
  std::thread news([&] {
    while (!over) {
      handler_.script.give("");
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(c.read_chunk(1), ": still here\n\n");
  }
  over = true;
  news.join();
}

TEST_F(HttpTest, StreamsForOldClientsEndWithTheConnection) {
  start();
  Client c = client();
  c.send("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const auto head = c.read_head();
  EXPECT_FALSE(head.headers.contains("transfer-encoding"));
  EXPECT_EQ(head.headers.at("connection"), "close");
  handler_.script.give("text", true);
  EXPECT_EQ(c.read_some(), "text");
  EXPECT_TRUE(c.closed_by_server());
}

TEST_F(HttpTest, LateResponses) {
  start();
  Client c = client();
  c.get("/late");
  EXPECT_TRUE(soon([&] { return handler_.script.alive == 1; }));
  handler_.script.give("here", true);
  EXPECT_EQ(c.read_answer().body, "here");
  EXPECT_EQ(handler_.script.alive, 0);
}

TEST_F(HttpTest, AClientThatGoesAwayEndsItsResponse) {
  start();
  for (const std::string path : {"/stream", "/late"}) {
    for (const bool reset : {false, true}) {
      Client c = client();
      c.get(path);
      ASSERT_TRUE(soon([&] { return handler_.script.alive == 1; })) << path;
      reset ? c.reset() : c.close();
      EXPECT_TRUE(soon([&] { return handler_.script.alive == 0; }, 1)) << path << reset;
    }
  }
  EXPECT_TRUE(soon([&] { return server_->connections() == 0; }));
}

TEST_F(HttpTest, AClientThatGoesAwayWhileItsRequestIsHandled) {
  start();
  for (int i = 0; i < 5; ++i) {
    Client c = client();
    c.get("/slow");
    EXPECT_TRUE(soon([&] { return handler_.handled == i + 1; }));
  }
  EXPECT_TRUE(soon([&] { return server_->connections() == 0; }));
}

// A client that does not read holds back its own stream: what has been pulled for it stays
// bounded. Others go on, and it is left in the end.
TEST_F(HttpTest, SlowReaders) {
  start({.send_buffer = 8 << 10, .piece = 4096, .write_time = std::chrono::milliseconds(500)});
  Client slow(server_->port(), 4096);
  slow.get("/stream");
  ASSERT_TRUE(soon([&] { return handler_.script.alive == 1; }));
  handler_.script.give(std::string(10 << 20, 'x'));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_LT(handler_.script.pulled, 1 << 20);
  Client fast = client();
  fast.get("/x");
  EXPECT_EQ(fast.read_answer().status, 200);
  EXPECT_TRUE(soon([&] { return handler_.script.alive == 0; }, 3));
}

TEST_F(HttpTest, QuickOnesDoNotWaitForWorkers) {
  start();
  std::vector<Client> slow;
  for (int i = 0; i < 6; ++i) {
    slow.push_back(client());
    slow.back().get("/slow");
  }
  ASSERT_TRUE(soon([&] { return handler_.handled >= 2; }));
  Client c = client();
  c.get("/quick");
  EXPECT_EQ(c.read_answer().body, "GET /quick [none] ");
  EXPECT_LT(handler_.handled, 7);  // four of the slow ones wait
  for (Client& one : slow) {
    EXPECT_EQ(one.read_answer().status, 200);
  }
}

TEST_F(HttpTest, ManyConnections) {
  start();
  std::vector<Client> clients;
  for (int i = 0; i < 300; ++i) {
    clients.push_back(client());
    clients.back().get("/n" + std::to_string(i));
  }
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(clients[i].read_answer().body, "GET /n" + std::to_string(i) + " [none] ");
  }
  EXPECT_EQ(server_->connections(), 300);
}

TEST_F(HttpTest, TooManyConnections) {
  start({.max_connections = 2});
  Client a = client(), b = client();
  a.get("/x");
  b.get("/x");
  EXPECT_EQ(a.read_answer().status, 200);
  EXPECT_EQ(b.read_answer().status, 200);
  Client c = client();
  EXPECT_EQ(c.read_answer().status, 503);
}

TEST_F(HttpTest, APortThatIsTaken) {
  start();
  HttpOptions options;
  options.port = server_->port();
  for (const char* host : {"127.0.0.1", "0.0.0.0"}) {
    options.host = host;
    try {
      const HttpServer second(options, handler_);
      FAIL();
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), HasSubstr(std::to_string(server_->port())));
      EXPECT_THAT(error.what(), HasSubstr("another program is listening there"));
    }
  }
  options.host = "999.1.1.1";
  EXPECT_THROW(HttpServer(options, handler_), UserError);
  options.host = "127.0.0.1";
  options.port = 70000;
  EXPECT_THROW(HttpServer(options, handler_), UserError);
}

TEST_F(HttpTest, UnixSockets) {
  const std::string path = testing::TempDir() + "quince_http_test.sock";
  std::filesystem::remove(path);
  HttpOptions options;
  options.unix_socket = path;
  {
    HttpServer server(options, handler_);
    server.start();
    EXPECT_EQ(server.url(), "unix:" + path);
    Client c(path);
    c.get("/x");
    EXPECT_EQ(c.read_answer().status, 200);
    EXPECT_THROW(HttpServer(options, handler_), UserError);  // in use
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  const int left = ::socket(AF_UNIX, SOCK_STREAM, 0);  // a socket that nobody listens on any more
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  ASSERT_EQ(::bind(left, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ::close(left);
  {
    const HttpServer server(options, handler_);
  }
  ::close(::open(path.c_str(), O_CREAT | O_WRONLY, 0600));
  EXPECT_THROW(HttpServer(options, handler_), UserError);  // a file
  std::filesystem::remove(path);
}

TEST_F(HttpTest, DrainingLetsResponsesEnd) {
  start();
  Client idle = client();
  idle.get("/x");
  idle.read_answer();
  Client busy = client();
  busy.get("/late");
  ASSERT_TRUE(soon([&] { return handler_.script.alive == 1; }));
  std::thread end([&] {
    EXPECT_TRUE(idle.closed_by_server(2));
    EXPECT_THROW(client(), std::runtime_error);
    handler_.script.give("done", true);
    const auto answer = busy.read_answer();
    EXPECT_EQ(answer.body, "done");
    EXPECT_EQ(answer.headers.at("connection"), "close");
    busy.close();
  });
  EXPECT_TRUE(server_->drain(std::chrono::seconds(10)));
  end.join();
}

// Half a head is nothing to wait for; half a body is, for a moment.
TEST_F(HttpTest, DrainingDoesNotWaitForHalfARequest) {
  start();
  Client fresh = client();
  fresh.send("GET /x HTT");
  Client used = client();
  used.get("/x");
  used.read_answer();
  used.send("GET /x HTTP/1.1\r\nHo");
  Client uploads = client();
  uploads.send("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\na");
  ::usleep(50000);
  EXPECT_FALSE(server_->drain(std::chrono::milliseconds(100)));
  EXPECT_EQ(server_->connections(), 1) << "the one with a body";
  uploads.send("bc");
  EXPECT_THAT(uploads.read_answer().body, HasSubstr("abc"));
  uploads.close();
  EXPECT_TRUE(server_->drain(std::chrono::seconds(5)));
}

TEST_F(HttpTest, DrainingWaitsForABodyOnlySoLong) {
  start();
  Client uploads = client();
  uploads.send("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\na");
  ::usleep(50000);
  const auto begin = std::chrono::steady_clock::now();
  while (!server_->drain(std::chrono::milliseconds(1)) &&
         std::chrono::steady_clock::now() - begin < std::chrono::seconds(15)) {
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(8));
}

TEST_F(HttpTest, TargetsWithSchemeAndHost) {
  start();
  for (const std::string target :
       {"http://example.com/x?q=1", "http://example.com:80/x?q=1", "HTTPS://h/x?q=1"}) {
    Client c = client();
    c.send("GET " + target + " HTTP/1.1\r\nHost: other\r\n\r\n");
    EXPECT_EQ(c.read_answer().body, "GET /x [1] ") << target;
  }
  Client c = client();
  c.send("GET http://example.com HTTP/1.1\r\nHost: other\r\n\r\n");
  EXPECT_EQ(c.read_answer().body, "GET / [none] ");
}

TEST_F(HttpTest, EndsWithResponsesUnderWay) {
  start();
  Client stream = client();
  stream.get("/stream");
  ASSERT_TRUE(soon([&] { return handler_.script.alive == 1; }));
  EXPECT_FALSE(server_->drain(std::chrono::milliseconds(50)));
  server_.reset();
  EXPECT_EQ(handler_.script.alive, 0);
  handler_.script.give("nobody listens");  // calls what is gone
}

}  // namespace

}  // namespace quince::server
