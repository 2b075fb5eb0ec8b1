// What a gateway does with bodies, heads and streams, without sockets.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "server/errors.h"
#include "server/upstream/event_frames.h"
#include "server/upstream/passed_headers.h"
#include "server/upstream/request_body.h"
#include "server/upstream/response_reader.h"

namespace quince::server {

namespace {

using testing::HasSubstr;
using testing::Not;

std::string renamed(const std::string& body, std::string quoted) {
  const auto parts = read_request_body(body).with_model(body, quoted);
  return std::string(parts[0]).append(parts[1]).append(parts[2]);
}

TEST(RequestBody, OnlyTheModelIsReplacedToTheByte) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"model":"a"})", R"({"model":"NEW"})"},
      {R"( { "x" : 1.0e+2 , "model"  :  "a\"}" , "y":[ ] } )",
       R"( { "x" : 1.0e+2 , "model"  :  "NEW" , "y":[ ] } )"},
      {R"({"messages":[{"model":"deep","content":"\"model\":\"no\""}],"model":"a","z":"model"})",
       R"({"messages":[{"model":"deep","content":"\"model\":\"no\""}],"model":"NEW","z":"model"})"},
      {R"({"v":"model","model":"a"})", R"({"v":"model","model":"NEW"})"},
      {R"({"mod\u0065l":"a"})", R"({"mod\u0065l":"NEW"})"},
      {"\xef\xbb\xbf{\"model\":\"a\"}", "\xef\xbb\xbf{\"model\":\"NEW\"}"},
      {R"( { "x":{"model":"deep"}})", R"( {"model":"NEW", "x":{"model":"deep"}})"}};
  for (const auto& [body, wanted] : cases) {
    EXPECT_EQ(renamed(body, "\"NEW\""), wanted);
  }
}

TEST(RequestBody, ReadsModelAndStream) {
  const RequestBody body =
      read_request_body(R"({"stream":true,"model":"a\u0020b","x":{"stream":false}})");
  EXPECT_TRUE(body.has_model);
  EXPECT_EQ(body.model, "a b");
  EXPECT_TRUE(body.stream);
  EXPECT_FALSE(read_request_body(R"({"x":[{"model":"a"}]})").has_model);
  EXPECT_FALSE(read_request_body(R"({"model":3})").has_model);
  EXPECT_FALSE(read_request_body(R"({"model":["a"]})").has_model);
  EXPECT_FALSE(read_request_body(R"({"model":{"b":"a"}})").has_model);
  EXPECT_TRUE(read_request_body(R"({"x":1})").names_none);
  for (const char* other : {R"({"model":"a"})", R"({"model":null})", "{}"}) {
    EXPECT_FALSE(read_request_body(other).names_none) << other;
  }
}

// Of two models one would be looked at here and the other one used there.
TEST(RequestBody, TwoModelsOrNoObjectAreRefused) {
  for (const char* body :
       {R"({"model":"a","model":"b"})",
        R"({"model":"a","mod\u0065l":"b"})",
        R"({"model":3,"model":"b"})",
        "[]",
        "\"model\"",
        "",
        "{",
        R"({"model":"a"}{"model":"b"})",
        R"({"model":"a"} x)"}) {
    EXPECT_THROW(static_cast<void>(read_request_body(body)), ApiError) << body;
  }
  EXPECT_THROW(
      static_cast<void>(read_request_body(std::string(100, '[') + std::string(100, ']'))),
      ApiError);
}

// However the bytes are cut.
TEST(EventFrames, WholeEventsGoOnHoweverTheyCome) {
  const std::string text =
      "data: {\"a\":1}\n\n: comment\n\nevent: x\r\ndata: {\"b\":\"\\n\\n\"}\r\n\r\ndata: "
      "[DONE]\n\n";
  for (size_t size = 1; size <= text.size(); ++size) {
    EventFrames frames;
    std::string out;
    for (size_t at = 0; at < text.size(); at += size) {
      frames.add(text.substr(at, size), out);
      EXPECT_TRUE(text.starts_with(out));
      EXPECT_TRUE(out.empty() || out.ends_with("\n\n") || out.ends_with("\r\n\r\n")) << out;
    }
    EXPECT_EQ(out, text) << size;
    EXPECT_EQ(frames.events(), 3);
    EXPECT_TRUE(frames.done());
  }
}

TEST(EventFrames, HalfAnEventIsHeldBack) {
  EventFrames frames;
  std::string out;
  frames.add("data: 1\n\ndata: {\"hal", out);
  EXPECT_EQ(out, "data: 1\n\n");
  EXPECT_FALSE(frames.done());
  frames.finish(out);
  EXPECT_EQ(out, "data: 1\n\ndata: {\"hal");
}

TEST(EventFrames, AnEndlessEventIsNotHeldForEver) {
  EventFrames frames;
  std::string out;
  for (int i = 0; i < 40; ++i) {
    frames.add(std::string(100000, 'x'), out);
  }
  EXPECT_GT(out.size(), 2000000U);
}

TEST(EventFrames, CountsWhatTheThreeApisReport) {
  const auto usage = [](const std::string& text) {
    EventFrames frames;
    std::string out;
    frames.add(text, out);
    EXPECT_TRUE(frames.has_usage());
    return frames.usage();
  };
  const auto chat = usage(
      "data: {\"usage\":null}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,"
      "\"completion_tokens\":7}}\n\n");
  EXPECT_EQ(chat.prompt, 5);
  EXPECT_EQ(chat.generated, 7);
  const auto messages = usage(
      "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":"
      "{\"input_tokens\":3,\"cache_read_input_tokens\":4,\"output_tokens\":1}}}\n\n"
      "event: message_delta\ndata: "
      "{\"type\":\"message_delta\",\"usage\":{\"output_tokens\":9}}\n\n");
  EXPECT_EQ(messages.prompt, 7);
  EXPECT_EQ(messages.generated, 9);
  const auto responses = usage(
      "event: response.completed\ndata: {\"type\":\"response.completed\",\"sequence_number\":12,"
      "\"response\":{\"usage\":{\"input_tokens\":2,\"output_tokens\":6}}}\n\n");
  EXPECT_EQ(responses.prompt, 2);
  EXPECT_EQ(responses.generated, 6);
}

HttpRequest request_of(Headers headers, const std::string& path = "/v1/chat/completions") {
  HttpRequest request;
  request.method = "POST";
  request.path = path;
  request.headers = std::move(headers);
  return request;
}

gateway::UpstreamConfig upstream_at(const std::string& url, const std::string& key = "") {
  return gateway::parse_config("[upstreams.u]\nurl = \"" + url + "\"\nkey = \"" + key + "\"\n", "q")
      .upstreams.at("u");
}

TEST(PassedHeaders, SecretsAndNeighboursMattersStayHere) {
  const std::string head = request_head(
      request_of(
          {{"Authorization", "Bearer client-secret"},
           {"x-api-key", "client-secret"},
           {"api-key", "client-secret"},
           {"Cookie", "client-secret"},
           {"Connection", "keep-alive, X-Hop"},
           {"X-Hop", "hop"},
           {"Transfer-Encoding", "chunked"},
           {"Content-Length", "999"},
           {"Expect", "100-continue"},
           {"Host", "gateway"},
           {"Accept-Encoding", "gzip"},
           {"Content-Type", "application/json"},
           {"anthropic-version", "2023-06-01"},
           {"OpenAI-Organization", "org"}}),
      upstream_at("http://box:8000/v1", "upstream-key"),
      12);
  EXPECT_THAT(
      head, testing::StartsWith("POST /v1/chat/completions HTTP/1.1\r\nHost: box:8000\r\n"));
  EXPECT_THAT(head, HasSubstr("Content-Length: 12\r\n"));
  EXPECT_THAT(head, HasSubstr("Authorization: Bearer upstream-key\r\n"));
  EXPECT_THAT(head, HasSubstr("anthropic-version: 2023-06-01\r\n"));
  EXPECT_THAT(head, HasSubstr("OpenAI-Organization: org\r\n"));
  for (const char* absent :
       {"client-secret", "X-Hop", "chunked", "999", "Expect", "gateway", "gzip", "x-api-key"}) {
    EXPECT_THAT(head, Not(HasSubstr(absent)));
  }
}

TEST(PassedHeaders, PathsAreJoinedAsAddressesAreWritten) {
  const auto line = [](const std::string& url, const std::string& path) {
    const std::string head = request_head(request_of({}, path), upstream_at(url), 0);
    return head.substr(0, head.find(" HTTP"));
  };
  EXPECT_EQ(line("http://a/v1", "/v1/embeddings"), "POST /v1/embeddings");
  EXPECT_EQ(line("http://a/", "/v1/embeddings"), "POST /v1/embeddings");
  EXPECT_EQ(line("http://a/openai/v1/", "/v1/x"), "POST /openai/v1/x");
  EXPECT_EQ(line("http://a/proxy", "/v1/x"), "POST /proxy/v1/x");
  EXPECT_EQ(line("http://a/v1", "/v1/a b?\xc3\xa9"), "POST /v1/a%20b%3F%C3%A9");
}

TEST(PassedHeaders, AnthropicsKeyUnderItsName) {
  const std::string head =
      request_head(request_of({}, "/v1/messages"), upstream_at("https://a/v1", "k-1"), 0);
  EXPECT_THAT(head, HasSubstr("x-api-key: k-1\r\n"));
  EXPECT_THAT(head, HasSubstr("Host: a\r\n"));
}

TEST(PassedHeaders, PathsThatClimbAreNotPlain) {
  EXPECT_TRUE(is_plain_path("/v1/chat/completions"));
  EXPECT_TRUE(is_plain_path("/v1/..a/.b"));
  for (const char* path : {"/v1/../admin", "/v1/./x", "/v1/..", "/v1/a\\..\\b", "/v1/a\nb"}) {
    EXPECT_FALSE(is_plain_path(path)) << path;
  }
}

struct Read {
  std::string error;
  std::string body;
  int status = 0;
  bool done = false;
  bool keeps = false;
};

Read read(const std::string& text, size_t step) {
  ResponseReader reader;
  Read out;
  boost::system::error_code error;
  for (size_t at = 0; at < text.size() && !error; at += step) {
    reader.add(std::string_view(text).substr(at, step), error);
    out.body += reader.take();
  }
  if (!error) {
    reader.closed(error);
  }
  out.error = error ? error.message() : "";
  out.status = reader.status();
  out.done = reader.done();
  out.keeps = reader.keeps_alive();
  return out;
}

TEST(ResponseReader, EveryFramingHoweverItIsCut) {
  const std::vector<std::pair<std::string, bool>> responses = {
      {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", true},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\nT: "
       "u\r\n\r\n",
       true},
      {"HTTP/1.0 200 OK\r\n\r\nhello", false},
      {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello", false},
      {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\n"
       "Content-Length: 5\r\n\r\nhello",
       true}};
  for (const auto& [text, keeps] : responses) {
    for (const size_t step : {size_t{1}, size_t{2}, size_t{7}, text.size()}) {
      const Read out = read(text, step);
      EXPECT_EQ(out.error, "") << text;
      EXPECT_EQ(out.body, "hello") << text;
      EXPECT_EQ(out.status, 200);
      EXPECT_TRUE(out.done);
      EXPECT_EQ(out.keeps, keeps) << text;
    }
  }
}

TEST(ResponseReader, TheEndOfAnEmptyBodyByteByByte) {
  for (const std::string& end : {"\r\n", "T: u\r\n\r\n", "\n\r\n"}) {
    const std::string text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + end;
    const Read whole = read(text, text.size());
    const Read cut = read(text, 1);
    EXPECT_EQ(cut.error, whole.error);
    EXPECT_EQ(cut.done, whole.done);
    EXPECT_EQ(cut.body, "");
  }
}

TEST(ResponseReader, WhatIsBrokenIsAnError) {
  for (const std::string& text :
       {std::string("garbage\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello"),
        std::string("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello"),
        std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
        std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel"),
        std::string("HTTP/1.1 101 Switching\r\n\r\n"),
        "HTTP/1.1 200 OK\r\nX: " + std::string(200000, 'x'),
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + std::string(200000, 'x'),
        std::string()}) {
    for (const size_t step : {size_t{1000}, text.size() + 1}) {
      EXPECT_NE(read(text, step).error, "") << text.substr(0, 80);
    }
  }
}

TEST(ResponseReader, AConnectionWithMoreThanItsResponseIsNotUsedAgain) {
  EXPECT_FALSE(
      read("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\n", 1000).keeps);
}

}  // namespace

}  // namespace quince::server
