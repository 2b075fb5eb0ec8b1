// quince serve with whatever holds keys and values: the first request of a fresh process is right
// on every thread, and what earlier processes left is used where it fits and refused where not.
#include <fstream>
#include <future>

#include <fmt/format.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "cli/serving.h"
#include "server/client.h"
#include "weights/files.h"

namespace quince::test {

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
using testing::HasSubstr;

constexpr const char* kLine = "The quick brown fox jumps over\xF0\x9F\x91\xA9";

class ServeCaches : public ServeTest {
 protected:
  static Answer post(const Serving& serving, const std::string& path, const std::string& body) {
    Client client(serving.port);
    client.post(path, body);
    return client.read_answer();
  }
  static Answer chat(
      const Serving& serving, const std::string& text, const std::string& fields = "") {
    return post(
        serving,
        "/v1/chat/completions",
        fmt::format(
            R"({{"temperature":0,"messages":[{{"role":"user","content":"{}"}}]{}}})",
            text,
            fields));
  }
  static std::string text_of(const Answer& answer) {
    EXPECT_EQ(answer.status, 200) << answer.body;
    return std::string(answer.json().at("choices").at(0).at("message").at("content").as_string());
  }
  static void end(Serving& serving) {
    serving.program.signal(SIGTERM);
    const ProgramResult result = serving.finish();
    EXPECT_EQ(result.status, 0) << result.err;
  }

  const TempFolder folder_;
};

// RUN-03: eight at once, before anything else was asked.
TEST_F(ServeCaches, FirstRequestsOfEveryKind) {
  const std::string plain = model(Script::script, "S");
  const std::string packed = folder_ / "packed";
  const ProgramResult converted = run_program({"convert", plain, packed, "--q-bits", "8"});
  ASSERT_EQ(converted.status, 0) << converted.err;
  const std::string prompt = folder_ / "prompt";
  const ProgramResult built =
      run_program({"cache", "build", plain, "--prompt", "one two three", "--raw", "-o", prompt});
  ASSERT_EQ(built.status, 0) << built.err;
  const std::vector<std::vector<std::string>> kinds = {
      {plain},
      {packed},
      {plain, "--kv-bits", "8"},
      {plain, "--kv-bits", "4"},
      {plain, "--prompt-cache-file", prompt},
      {plain, "--draft-model", plain},
      {plain, "--cache-dir", folder_ / "pages"},
      {plain, "--cache-dir", folder_ / "pages"},  // with what is there now
      {plain, "--kernels", "mlx"},
      {packed, "--kernels", "mlx"},
      {plain, "--kernels", "mlx", "--kv-bits", "8"},
      {plain, "--kernels", "mlx", "--draft-model", plain}};
  for (const std::vector<std::string>& arguments : kinds) {
    SCOPED_TRACE(json::serialize(json::value_from(arguments)));
    Serving serving(arguments);
    ASSERT_GT(serving.port, 0) << serving.finish().err;
    std::vector<std::future<Answer>> answers;
    for (int i = 0; i < 8; ++i) {
      answers.push_back(std::async(std::launch::async, [&, i] {
        return i % 2 == 0 ? chat(serving, "hi")
                          : post(serving, "/v1/embeddings", R"({"input":"fox"})");
      }));
    }
    std::vector<Answer> all;
    for (auto& answer : answers) {
      all.push_back(answer.get());
    }
    for (int i = 0; i < 8; ++i) {
      ASSERT_EQ(all[i].status, 200) << all[i].body;
      if (i % 2 == 0) {
        EXPECT_EQ(text_of(all[i]), kLine);
      } else {
        EXPECT_EQ(
            all[i].json().at("data").at(0).at("embedding").as_array().size(),
            static_cast<size_t>(kScriptVocabulary));
      }
    }
    end(serving);
  }
}

// CTX-02: after another start too, the answer is the one of a server that keeps nothing.
TEST_F(ServeCaches, TheNextStartAnswersAsTheFirst) {
  const std::string majority = model(Script::majority, "M");
  std::string prompt = "B";
  while (prompt.size() < 299) {
    prompt += prompt.size() % 2 == 0 ? "A" : "B";
  }
  const auto ask = [&](const Serving& serving, const std::string& text) {
    return chat(serving, text, R"(,"max_tokens":8)");
  };
  const auto cached = [](const Answer& answer) {
    return answer.json().at("usage").at("prompt_tokens_details").at("cached_tokens").as_int64();
  };
  std::map<std::string, std::string> want;
  {
    Serving cold({majority, "--cache-ram", "0"});
    ASSERT_GT(cold.port, 0) << cold.finish().err;
    for (const std::string& text : {prompt, prompt + "A", prompt.substr(0, 200)}) {
      const Answer answer = ask(cold, text);
      want[text] = text_of(answer);
      EXPECT_EQ(cached(answer), 0);
    }
    end(cold);
  }
  for (int start = 0; start < 2; ++start) {
    Serving serving({majority, "--cache-dir", folder_ / "pages"});
    ASSERT_GT(serving.port, 0) << serving.finish().err;
    const Answer first = ask(serving, prompt);
    EXPECT_EQ(text_of(first), want[prompt]);
    EXPECT_EQ(cached(first) > 0, start == 1) << "known from before";
    for (int i = 0; i < 2; ++i) {
      for (const auto& [text, answer] : want) {
        const Answer again = ask(serving, text);
        EXPECT_EQ(text_of(again), answer);
        EXPECT_LT(cached(again), again.json().at("usage").at("prompt_tokens").as_int64());
      }
    }
    end(serving);
  }
}

// CTX-06: models of the same shape.
TEST_F(ServeCaches, APromptOfAnotherModelIsRefused) {
  const fs::path majority = model(Script::majority, "M");
  const std::string file = folder_ / "prompt";
  const ProgramResult built = run_program(
      {"cache", "build", majority, "--prompt", std::string(50, 'A'), "--raw", "-o", file});
  ASSERT_EQ(built.status, 0) << built.err;
  const auto run = [&](const std::string& model, const std::vector<std::string>& more) {
    std::vector<std::string> arguments{
        "run", model, "B", "--raw", "-n", "4", "--temp", "0", "--prompt-cache-file", file};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments);
  };
  const auto copy = [&](const std::string& name, const std::string& changed, auto&& change) {
    const fs::path to = folder_ / name;
    fs::copy(majority, to, fs::copy_options::recursive);
    std::string text = read_file(to / changed);
    const std::string before = text;
    change(text);
    EXPECT_NE(text, before);
    std::ofstream(to / changed) << text;
    return to.string();
  };
  const auto replace = [](const std::string& from, const std::string& to) {
    return [from, to](std::string& text) {
      const size_t at = text.find(from);
      if (at != std::string::npos) {
        text.replace(at, from.size(), to);
      }
    };
  };
  for (const std::string& other :
       {model(Script::script, "S"),
        copy("rope", "config.json", replace("\"rope_theta\":1E4", "\"rope_theta\":2E4")),
        copy("letters", "tokenizer.json", replace("[\"A\",", "[\"Q\","))}) {
    const ProgramResult refused = run(other, {});
    EXPECT_EQ(refused.status, 2) << other << refused.out;
    EXPECT_THAT(refused.err, HasSubstr("of another model")) << other;
    EXPECT_EQ(refused.out, "") << other;
    const ProgramResult serving =
        run_program({"serve", other, "--port", "0", "--prompt-cache-file", file});
    EXPECT_EQ(serving.status, 2) << other;
    EXPECT_THAT(serving.err, HasSubstr("of another model")) << other;
  }
  // Numbers of another width are made of those in the file.
  for (const char* bits : {"8", "4"}) {
    EXPECT_EQ(run(majority, {"--kv-bits", bits}).out, "AAAA\n");
  }
  std::string odd = read_file(file);
  const size_t at = odd.find("KVCache");
  ASSERT_NE(at, std::string::npos);
  std::ofstream(file, std::ios::binary) << odd.replace(at, 7, "FooBars");
  const ProgramResult refused = run(majority, {});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("FooBars"));
}

// HTTP-10: whoever has the port, and on whatever address; said before the model is read.
TEST_F(ServeCaches, PortsOfOthers) {
  const std::string missing = folder_ / "there is no such model";
  const auto expect_refused = [&](const std::string& host, int port) {
    const auto begin = std::chrono::steady_clock::now();
    const ProgramResult result =
        run_program({"serve", missing, "--host", host, "--port", std::to_string(port)});
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.err, HasSubstr(std::to_string(port))) << host;
    EXPECT_THAT(result.err, HasSubstr("another program is listening")) << host;
    EXPECT_EQ(result.out, "");
  };
  const int other = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::bind(other, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(other, 1), 0);
  ASSERT_EQ(::getsockname(other, reinterpret_cast<sockaddr*>(&address), &size), 0);
  for (const char* host : {"127.0.0.1", "0.0.0.0", "localhost"}) {
    expect_refused(host, ntohs(address.sin_port));
  }
  ::close(other);
  Serving everywhere({model(Script::script, "S"), "--host", "0.0.0.0"});
  const size_t at = everywhere.line.find("://0.0.0.0:");
  ASSERT_NE(at, std::string::npos) << everywhere.line;
  const int port = std::atoi(everywhere.line.c_str() + at + 11);
  for (const char* host : {"127.0.0.1", "0.0.0.0"}) {
    expect_refused(host, port);
  }
  Client client(port);
  client.get("/health");
  EXPECT_EQ(client.read_answer().status, 200);
  client.close();
  end(everywhere);
  const int sixth_version = ::socket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 loopback{};
  loopback.sin6_family = AF_INET6;
  loopback.sin6_addr = in6addr_loopback;
  const bool has_sixth =
      sixth_version >= 0 &&
      ::bind(sixth_version, reinterpret_cast<sockaddr*>(&loopback), sizeof(loopback)) == 0;
  ::close(sixth_version);
  if (!has_sixth) {
    GTEST_SKIP() << "no IPv6 here";
  }
  // With the brackets of an address in a URL, or without.
  for (const char* host : {"::1", "[::1]"}) {
    Serving sixth({model(Script::script, "S"), "--host", host});
    EXPECT_THAT(sixth.line, HasSubstr("http://[::1]:"));
    sixth.program.signal(SIGTERM);
    EXPECT_EQ(sixth.finish().status, 0);
  }
}

}  // namespace

}  // namespace quince::test
