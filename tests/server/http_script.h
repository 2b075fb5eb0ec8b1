// A server whose responses are what a test says, when it says so.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "server/client.h"
#include "server/http.h"

namespace quince::test {

using server::HttpOptions;
using server::HttpRequest;
using server::HttpServer;
using server::PendingResponse;
using server::Response;
using server::ResponseStream;

// What streams and late responses of a test do.
struct HttpScript {
  std::mutex mutex;
  std::string text;  // not yet pulled
  bool ended = false;
  std::function<void()> notify;
  std::atomic<int> alive = 0;
  std::atomic<size_t> pulled = 0;

  // For another response.
  void reset() {
    const std::lock_guard lock(mutex);
    text.clear();
    ended = false;
    notify = nullptr;
  }
  void give(const std::string& more, bool last = false) {
    std::function<void()> call;
    {
      std::lock_guard lock(mutex);
      text += more;
      ended = ended || last;
      call = notify;
    }
    if (call) {
      call();
    }
  }
};

class ScriptStream : public ResponseStream {
 public:
  explicit ScriptStream(HttpScript& script) : script_(script) {
    ++script_.alive;
  }
  ~ScriptStream() override {
    --script_.alive;
  }
  void start(std::function<void()> notify) override {
    std::lock_guard lock(script_.mutex);
    script_.notify = std::move(notify);
  }
  Piece pull(size_t max_bytes) override {
    std::lock_guard lock(script_.mutex);
    Piece piece;
    piece.bytes = script_.text.substr(0, max_bytes);
    script_.text.erase(0, max_bytes);
    script_.pulled += piece.bytes.size();
    piece.ended = script_.ended && script_.text.empty();
    return piece;
  }
  std::string keep_alive() override {
    return ": still here\n\n";
  }

 private:
  HttpScript& script_;
};

class ScriptPending : public PendingResponse {
 public:
  explicit ScriptPending(HttpScript& script) : script_(script) {
    ++script_.alive;
  }
  ~ScriptPending() override {
    --script_.alive;
  }
  void start(std::function<void()> notify) override {
    std::lock_guard lock(script_.mutex);
    script_.notify = std::move(notify);
  }
  std::optional<Response> poll() override {
    std::lock_guard lock(script_.mutex);
    if (!script_.ended) {
      return std::nullopt;
    }
    return Response{.status = 200, .content_type = "text/plain", .body = script_.text};
  }

 private:
  HttpScript& script_;
};

class ScriptHandler : public server::HttpHandler {
 public:
  std::optional<Response> refuse(const HttpRequest& head) override {
    if (head.path == "/refused") {
      return Response{.status = 401, .body = "{}"};
    }
    return std::nullopt;
  }
  bool is_quick(const HttpRequest& head) override {
    return head.path == "/quick";
  }
  Response handle(HttpRequest request) override {
    ++handled;
    if (request.path == "/stream") {
      return {
          .content_type = "text/event-stream", .stream = std::make_unique<ScriptStream>(script)};
    }
    if (request.path == "/late") {
      return {.pending = std::make_unique<ScriptPending>(script)};
    }
    if (request.path == "/slow") {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    return {
        .content_type = "text/plain",
        .headers = {{"X-Odd", "a\r\nX-Injected: b"}},
        .body = request.method + " " + request.path + " [" +
                request.parameter("q").value_or("none") + "] " + request.body};
  }
  void sending(int) override {}
  Response error(int status, const std::string& message, const HttpRequest&) override {
    return {.status = status, .content_type = "text/plain", .body = message};
  }

  HttpScript script;
  std::atomic<int> handled = 0;
};

class HttpTest : public testing::Test {
 protected:
  void start(HttpOptions options = {}) {
    options.port = 0;
    server_.emplace(options, handler_);
    server_->start();
  }
  Client client() {
    return Client(server_->port());
  }
  // A stream of the script whose head has been read: what is given comes at once.
  void expect_pieces(Client& c) {
    EXPECT_EQ(c.read_chunk(1), ": still here\n\n");
    handler_.script.give("one");
    std::string piece;
    while ((piece = *c.read_chunk(1)) == ": still here\n\n") {
    }
    EXPECT_EQ(piece, "one");
    handler_.script.give("two", true);
    std::string rest;
    while (auto chunk = c.read_chunk(1)) {
      rest += *chunk;
    }
    EXPECT_THAT(rest, testing::EndsWith("two"));
  }

  ScriptHandler handler_;
  std::optional<HttpServer> server_;
};

}  // namespace quince::test
