// The lines that are written of requests: what is in them, and what never is.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "server/request_log.h"
#include "server/served.h"

namespace quince::test {

namespace {

namespace json = boost::json;
using testing::HasSubstr;
using testing::Not;

class Log : public testing::Test {
 protected:
  // Serves while work is done, and gives the lines of it.
  template <typename Work>
  std::vector<std::string> lines(server::LogFormat format, bool prompts, Work work) {
    const auto path =
        std::filesystem::path(testing::TempDir()) / ("quince_log_" + std::to_string(::getpid()));
    std::filesystem::remove(path);
    {
      server::AppOptions options;
      options.api_keys = {"s3cret"};
      options.log = std::make_shared<server::RequestLog>(format, prompts, path.string());
      Served served(serve_script(Script::script, "S"), std::move(options));
      work(served);
    }
    std::ifstream stream(path);
    std::vector<std::string> out;
    for (std::string line; std::getline(stream, line);) {
      out.push_back(line);
    }
    std::filesystem::remove(path);
    return out;
  }

  static constexpr const char* kKey = "Authorization: Bearer s3cret\r\n";
  static constexpr const char* kBody =
      R"({"messages":[{"role":"user","content":"private words"}],"user":"me\nyou"})";
};

// As logrotate does it: the file is moved away, and then comes a SIGHUP.
TEST(LogFiles, AreOpenedAgain) {
  const auto folder =
      std::filesystem::path(testing::TempDir()) / ("quince_logs_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const auto path = folder / "log";
  const auto text_of = [](const std::filesystem::path& file) {
    std::ifstream stream(file);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  };
  {
    server::RequestLog log(server::LogFormat::text, false, path.string());
    log.add("info", "first", {});
    std::filesystem::rename(path, folder / "old");
    log.reopen();
    log.add("info", "second", {});
    std::filesystem::permissions(path, std::filesystem::perms::owner_read);
    std::filesystem::rename(path, folder / "older");
    std::filesystem::create_directory(path);
    EXPECT_THROW(log.reopen(), UserError) << "a folder";
    log.add("info", "third", {});
  }
  const std::string lines = text_of(folder / "old") + text_of(folder / "older");
  EXPECT_THAT(lines, HasSubstr("first"));
  EXPECT_THAT(text_of(folder / "older"), HasSubstr("second"));
  EXPECT_THAT(text_of(folder / "older"), HasSubstr("third")) << "all stays as it was";
  std::filesystem::remove_all(folder);
}

TEST_F(Log, JsonLines) {
  std::string id;
  const auto found = lines(server::LogFormat::json, false, [&](Served& served) {
    id = served.post("/v1/chat/completions", kBody, kKey).headers.at("x-request-id");
    served.get("/v1/models", "x-api-key: wr0ng\r\n");
    served.post("/tokenize", "{", kKey);
    EXPECT_THAT(served.get("/health").headers.at("x-request-id"), testing::StartsWith("req_"));
  });
  ASSERT_EQ(found.size(), 5u);
  std::vector<json::value> values;
  for (const std::string& line : found) {
    values.push_back(json::parse(line));
    EXPECT_THAT(
        std::string(values.back().at("time").as_string()),
        testing::MatchesRegex("....-..-..T..:..:..\\....Z"));
    for (const char* never : {"private", "s3cret", "wr0ng", "quick"}) {
      EXPECT_THAT(line, Not(HasSubstr(never)));
    }
  }
  const auto of = [&](const char* event, int64_t status) {
    return *std::find_if(values.begin(), values.end(), [&](const json::value& value) {
      return value.at("event") == event && (status == 0 || value.at("status").as_int64() == status);
    });
  };
  const json::value answer = of("answer", 0);
  EXPECT_EQ(answer.at("request_id"), json::value(id));
  EXPECT_EQ(answer.at("finish_reason"), "stop");
  EXPECT_EQ(answer.at("tokens"), 11);
  EXPECT_EQ(of("request", 401).at("level"), "warning");
  EXPECT_EQ(of("request", 401).at("path"), "/v1/models");
  EXPECT_EQ(of("request", 400).at("path"), "/tokenize");
}

TEST_F(Log, PromptsIfTheyAreWanted) {
  const auto found = lines(server::LogFormat::json, true, [&](Served& served) {
    served.post("/v1/chat/completions", kBody, kKey);
  });
  ASSERT_EQ(found.size(), 2u);
  EXPECT_THAT(found[0] + found[1], HasSubstr("private words"));
  EXPECT_THAT(found[0] + found[1], Not(HasSubstr("s3cret")));
}

// A line is a line, whatever clients put into it.
TEST_F(Log, TextLines) {
  const auto found = lines(server::LogFormat::text, false, [&](Served& served) {
    served.get("/a%0Ainjected%20line%20level=error", kKey);
  });
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0], HasSubstr(R"(path="/a\ninjected line level=error" status=404)"));
  EXPECT_THAT(found[0], HasSubstr(" warning request request_id=req_"));
}

TEST_F(Log, AnswersThatBreakOff) {
  const auto found = lines(server::LogFormat::json, false, [&](Served& served) {
    Client client = served.client();
    client.post(
        "/v1/completions",
        R"({"prompt":"x","max_tokens":500,"ignore_eos":true,"stream":true})",
        kKey);
    client.read_head();
    client.reset();
    EXPECT_TRUE(soon([&] { return served.app.active().list().empty(); }));
  });
  EXPECT_THAT(found.back(), HasSubstr(R"("finish_reason":"abort")"));
}

TEST(LogFile, ThatCannotBe) {
  EXPECT_THROW(server::RequestLog(server::LogFormat::json, false, "/dev/null/log"), UserError);
}

}  // namespace

}  // namespace quince::test
