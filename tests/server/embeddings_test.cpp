// /v1/embeddings through a socket: every shape that clients send, and what they get.
#include <bit>
#include <cmath>

#include <fmt/format.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "server/base64.h"
#include "server/served.h"

namespace quince::test {

namespace {

namespace json = boost::json;
using testing::HasSubstr;

constexpr const char* kPath = "/v1/embeddings";

using Vectors = std::vector<std::vector<double>>;

Vectors vectors_of(const Answer& answer) {
  EXPECT_EQ(answer.status, 200) << answer.body;
  Vectors out;
  const json::value value = answer.json();
  for (const json::value& row : value.at("data").as_array()) {
    EXPECT_EQ(row.at("object"), "embedding");
    EXPECT_EQ(row.at("index").to_number<size_t>(), out.size());
    std::vector<double>& vector = out.emplace_back();
    for (const json::value& number : row.at("embedding").as_array()) {
      vector.push_back(number.to_number<double>());
    }
  }
  return out;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += a[i] * b.at(i);
  }
  return sum;
}

void expect_near(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_NEAR(a[i], b[i], 1e-5) << i;
  }
}

class Embeddings : public ServedTest<Script::script> {};

TEST(Base64, OfEveryLength) {
  // RFC 4648, section 10.
  const std::pair<std::string, std::string> known[] = {
      {"", ""},
      {"f", "Zg=="},
      {"fo", "Zm8="},
      {"foo", "Zm9v"},
      {"foob", "Zm9vYg=="},
      {"fooba", "Zm9vYmE="},
      {"foobar", "Zm9vYmFy"},
      {std::string("\xff\0\xfe", 3), "/wD+"}};
  for (const auto& [bytes, text] : known) {
    EXPECT_EQ(server::base64(bytes), text);
  }
}

TEST_F(Embeddings, Shapes) {
  const Answer one = served().post(kPath, R"({"input":"The quick fox","model":"S","user":"me"})");
  const Vectors vector = vectors_of(one);
  ASSERT_EQ(vector.size(), 1u);
  EXPECT_EQ(vector[0].size(), served().app.loaded()->engine->info().hidden_size);
  EXPECT_NEAR(dot(vector[0], vector[0]), 1, 1e-5);
  EXPECT_EQ(one.json().at("object"), "list");
  EXPECT_EQ(one.json().at("model"), "S");
  const json::value usage = one.json().at("usage");
  EXPECT_EQ(usage.at("prompt_tokens"), usage.at("total_tokens"));
  EXPECT_GT(usage.at("prompt_tokens").as_int64(), 2);
  EXPECT_FALSE(one.headers.contains("x-quince-ignored"));

  // Several, in their order, each as if it were alone; text and its tokens are the same.
  const json::value tokens =
      served().post("/tokenize", R"({"content":"fox","add_special":true})").json();
  const Vectors several =
      vectors_of(served().post(kPath, R"({"input":["x y z","The quick fox","fox"]})"));
  ASSERT_EQ(several.size(), 3u);
  expect_near(several[1], vector[0]);
  const std::string ids = json::serialize(tokens.at("tokens"));
  expect_near(vectors_of(served().post(kPath, R"({"input":)" + ids + "}")).at(0), several[2]);
  const Vectors lists = vectors_of(served().post(kPath, R"({"input":[)" + ids + "," + ids + "]}"));
  ASSERT_EQ(lists.size(), 2u);
  expect_near(lists[1], several[2]);
}

// RUN-05.
TEST_F(Embeddings, Base64IsTheSameNumbers) {
  const std::vector<double> plain = vectors_of(served().post(kPath, R"({"input":"fox"})")).at(0);
  const Answer answer = served().post(kPath, R"({"input":"fox","encoding_format":"base64"})");
  const json::value value = answer.json();
  std::string bytes;
  for (const double number : plain) {
    const auto bits = std::bit_cast<uint32_t>(static_cast<float>(number));
    for (int shift = 0; shift < 32; shift += 8) {
      bytes += static_cast<char>(bits >> shift & 0xff);
    }
  }
  EXPECT_EQ(value.at("data").at(0).at("embedding"), json::value(server::base64(bytes)));
}

// RUN-05, all of it: each way to ask for numbers, of one text and of several.
TEST_F(Embeddings, EncodingFormats) {
  for (const char* input : {R"("fox")", R"(["fox","The quick","x y z"])"}) {
    for (const char* fewer : {"", R"(,"dimensions":8)"}) {
      const auto ask = [&](const std::string& format) {
        return served().post(kPath, fmt::format(R"({{"input":{}{}{}}})", input, fewer, format));
      };
      const Vectors plain = vectors_of(ask(""));
      EXPECT_EQ(vectors_of(ask(R"(,"encoding_format":"float")")), plain);
      EXPECT_EQ(vectors_of(ask(R"(,"encoding_format":null)")), plain);
      const json::value packed = ask(R"(,"encoding_format":"base64")").json();
      ASSERT_EQ(packed.at("data").as_array().size(), plain.size());
      for (size_t i = 0; i < plain.size(); ++i) {
        std::string bytes;
        for (const double number : plain[i]) {
          const auto bits = std::bit_cast<uint32_t>(static_cast<float>(number));
          for (int shift = 0; shift < 32; shift += 8) {
            bytes += static_cast<char>(bits >> shift & 0xff);
          }
        }
        EXPECT_EQ(packed.at("data").at(i).at("embedding"), json::value(server::base64(bytes)));
      }
      const Answer hex = ask(R"(,"encoding_format":"hex")");
      EXPECT_EQ(hex.status, 400);
      EXPECT_EQ(hex.json().at("error").at("param"), "encoding_format");
    }
  }
  // [0.6, 0.8, 0] as every client packs it.
  EXPECT_EQ(
      server::base64(std::string("\x9a\x99\x19\x3f\xcd\xcc\x4c\x3f\0\0\0\0", 12)),
      "mpkZP83MTD8AAAAA");
}

TEST_F(Embeddings, FewerDimensionsAreTheBeginning) {
  const std::vector<double> all =
      vectors_of(served().post(kPath, R"({"input":"fox","normalize":false})")).at(0);
  std::vector<double> begin =
      vectors_of(served().post(kPath, R"({"input":"fox","dimensions":280})")).at(0);
  ASSERT_EQ(begin.size(), 280u);
  EXPECT_NEAR(dot(begin, begin), 1, 1e-5);
  double squares = 0;
  for (size_t i = 0; i < 280; ++i) {
    squares += all[i] * all[i];
  }
  for (size_t i = 0; i < 280; ++i) {
    EXPECT_NEAR(begin[i] * std::sqrt(squares), all[i], 1e-4 + 1e-4 * std::abs(all[i]));
  }
}

// The mean of the last states of all beginnings of the text.
TEST_F(Embeddings, Pooling) {
  const json::value tokens =
      served().post("/tokenize", R"({"content":"The quick fox","add_special":true})").json();
  const json::array ids = tokens.at("tokens").as_array();
  std::vector<double> mean;
  json::array beginning;
  for (const json::value& id : ids) {
    beginning.push_back(id);
    const auto last = vectors_of(served().post(
        kPath, json::serialize(json::object{{"input", beginning}, {"normalize", false}})));
    mean.resize(last.at(0).size());
    for (size_t i = 0; i < mean.size(); ++i) {
      mean[i] += last[0][i] / static_cast<double>(ids.size());
    }
  }
  expect_near(
      vectors_of(
          served().post(kPath, R"({"input":"The quick fox","pooling":"mean","normalize":false})"))
          .at(0),
      mean);
}

// In pieces of any size, beside others and beside what is generated.
TEST(EmbeddingBatches, PiecesGiveTheSame) {
  Served whole(serve_script(Script::script, "S"));
  EngineOptions small;
  small.prefill_chunk = 3;
  Served pieces(serve_script(Script::script, "S", small));
  std::vector<std::string> texts{
      "x", "The quick brown fox jumps over", "fox over The", "y z x y z"};
  const std::string input = json::serialize(json::value_from(texts));
  Client busy = pieces.client();
  busy.post(
      "/v1/completions", R"({"prompt":"x","max_tokens":300,"ignore_eos":true,"stream":true})");
  for (const std::string& pooling : {"last", "mean"}) {
    const std::string body = fmt::format(R"({{"input":{},"pooling":"{}"}})", input, pooling);
    const Vectors want = vectors_of(whole.post(kPath, body));
    const Vectors have = vectors_of(pieces.post(kPath, body));
    ASSERT_EQ(want.size(), texts.size());
    for (size_t i = 0; i < want.size(); ++i) {
      expect_near(have.at(i), want[i]);
    }
  }
  EXPECT_EQ(busy.read_answer().status, 200);
}

TEST_F(Embeddings, WhatIsTooLong) {
  std::string text;
  for (int i = 0; i < 600; ++i) {
    text += " x";
  }
  const std::string input = R"("input":[")" + text + R"("])";
  const Answer refused = served().post(kPath, "{" + input + "}");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.json().at("error").at("code"), "context_length_exceeded");
  EXPECT_THAT(refused.body, HasSubstr("512"));
  for (const std::string& how : {"\"truncate\":true", "\"truncate_prompt_tokens\":-1"}) {
    const Answer answer = served().post(kPath, fmt::format("{{{},{}}}", input, how));
    EXPECT_EQ(answer.json().at("usage").at("prompt_tokens"), 512) << answer.body;
  }
  EXPECT_EQ(
      served()
          .post(kPath, "{" + input + R"(,"truncate_prompt_tokens":7})")
          .json()
          .at("usage")
          .at("total_tokens"),
      7);
}

TEST_F(Embeddings, WhatCannotBe) {
  const std::pair<std::string, std::string> wrong[] = {
      {"{}", "input"},
      {R"({"input":""})", "input"},
      {R"({"input":[]})", "input"},
      {R"({"input":["x",""]})", "input"},
      {R"({"input":[[]]})", "input"},
      {R"({"input":[1,"x"]})", "input"},
      {R"({"input":[999999]})", "input"},
      {R"({"input":{"text":"x"}})", "input"},
      {R"({"input":"x","encoding_format":"int8"})", "encoding_format"},
      {R"({"input":"x","dimensions":0})", "dimensions"},
      {R"({"input":"x","dimensions":100000})", "dimensions"},
      {R"({"input":"x","pooling":"max"})", "pooling"},
      {R"({"input":"x","user":5})", "user"}};
  for (const auto& [body, field] : wrong) {
    const Answer answer = served().post(kPath, body);
    EXPECT_EQ(answer.status, 400) << body << answer.body;
    EXPECT_EQ(answer.json().at("error").at("param"), json::value(field)) << body << answer.body;
  }
  EXPECT_EQ(served().post(kPath, R"({"input":"x","model":"no"})").status, 404);
}

// Whoever goes away takes his work with him, and the server can end.
TEST(EmbeddingClients, WhoGoesAway) {
  EngineOptions small;
  small.prefill_chunk = 1;
  Served served(serve_script(Script::script, "S", small));
  std::string text;
  for (int i = 0; i < 400; ++i) {
    text += " x";
  }
  const std::string input = "[\"" + text + "\",\"" + text + "\",\"" + text + "\"]";
  for (int i = 0; i < 20; ++i) {
    Client client = served.client();
    client.post(kPath, R"({"input":)" + input + "}");
    ::usleep(2000);
  }
  EXPECT_EQ(vectors_of(served.post(kPath, R"({"input":"x"})")).size(), 1u);
  served.app.loaded()->engine->drain();
  EXPECT_EQ(served.post(kPath, R"({"input":"x"})").status, 503);
}

}  // namespace

}  // namespace quince::test
