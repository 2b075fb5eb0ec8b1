// quince serve from outside: starting, being in the way, ending.
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "cli/serving.h"
#include "server/certificate.h"
#include "server/client.h"
#include "server/tls_client.h"

namespace quince::test {

namespace {

using testing::HasSubstr;

constexpr const char* kStream =
    R"({"messages":[{"role":"user","content":"x"}],"stream":true,"temperature":0})";

TEST_F(ServeTest, AnswersUntilItIsToldToEnd) {
  Serving serving({model(Script::script, "S"), "--alias", "tiny,other", "--api-key", "k"});
  ASSERT_GT(serving.port, 0) << serving.line;
  EXPECT_THAT(serving.line, testing::StartsWith("tiny listens on "));
  Client c(serving.port);
  c.get("/v1/models", "Authorization: Bearer k\r\n");
  const Answer models = c.read_answer();
  EXPECT_EQ(models.json().at("data").at(0).at("id"), "tiny");
  c.post("/v1/chat/completions", kStream, "Authorization: Bearer k\r\n");
  EXPECT_THAT(c.read_answer().body, testing::EndsWith("[DONE]\n\n"));
  c.get("/v1/models");
  EXPECT_EQ(c.read_answer().status, 401);
  serving.program.signal(SIGTERM);
  EXPECT_TRUE(c.closed_by_server());
  const ProgramResult result = serving.finish();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("ending"));
}

TEST_F(ServeTest, ThroughTls) {
  const std::string base = testing::TempDir() + "quince_serve_tls_" + std::to_string(::getpid());
  const std::string certificate = base + ".pem", key = base + ".key";
  write_certificate("IP:127.0.0.1", certificate, key);
  Serving serving(
      {model(Script::script, "S"), "--ssl-cert-file", certificate, "--ssl-key-file", key});
  ASSERT_GT(serving.port, 0) << serving.line;
  EXPECT_THAT(serving.line, HasSubstr(" listens on https://127.0.0.1:"));
  TlsClient c(serving.port);
  c.post("/v1/chat/completions", kStream);
  EXPECT_THAT(c.read_answer().body, testing::EndsWith("[DONE]\n\n"));
  serving.program.signal(SIGTERM);
  EXPECT_TRUE(c.closed_by_server());
  EXPECT_TRUE(c.was_told_goodbye());
  EXPECT_EQ(serving.finish().status, 0);
  std::filesystem::remove(certificate);
  std::filesystem::remove(key);
}

// Without --config too.
TEST_F(ServeTest, ReadsFilesAgainOnHangup) {
  const std::string base = testing::TempDir() + "quince_serve_hup_" + std::to_string(::getpid());
  const std::string certificate = base + ".pem", key = base + ".key", keys = base + ".keys";
  write_certificate("IP:127.0.0.1", certificate, key);
  const auto write = [&](const std::string& text) { std::ofstream(keys) << text; };
  write("# whose is this?\nold-key\n");
  Serving serving(
      {model(Script::script, "S"),
       "--ssl-cert-file",
       certificate,
       "--ssl-key-file",
       key,
       "--api-key",
       "always",
       "--api-key-file",
       keys});
  ASSERT_GT(serving.port, 0) << serving.line;
  TlsClient before(serving.port);
  const auto status = [&](const std::string& secret) {
    TlsClient c(serving.port);
    c.get("/v1/models", "Authorization: Bearer " + secret + "\r\n");
    return c.read_answer().status;
  };
  EXPECT_EQ(status("old-key"), 200);
  EXPECT_EQ(status("# whose is this?"), 401);
  write_certificate("IP:127.0.0.1", certificate, key);
  write("  new-key \n");
  serving.program.signal(SIGHUP);
  EXPECT_TRUE(soon([&] { return status("new-key") == 200; }));
  EXPECT_EQ(status("old-key"), 401);
  EXPECT_EQ(status("always"), 200);
  TlsClient after(serving.port);
  EXPECT_NE(after.certificate(), before.certificate());
  std::ofstream(certificate) << "no certificate";
  for (const char* nobody : {"", "two words\n"}) {
    write(nobody);
    serving.program.signal(SIGHUP);
    ::usleep(200000);
  }
  EXPECT_EQ(status("new-key"), 200);
  EXPECT_EQ(TlsClient(serving.port).certificate(), after.certificate());
  serving.program.signal(SIGTERM);
  const ProgramResult result = serving.finish();
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.err, HasSubstr(certificate + ": reloaded"));
  EXPECT_THAT(result.err, HasSubstr("not reloaded, all stays as it was: --ssl-cert-file"));
  EXPECT_THAT(result.err, HasSubstr("not reloaded, all stays as it was: --api-key-file"));
  for (const std::string& file : {certificate, key, keys}) {
    std::filesystem::remove(file);
  }
}

TEST_F(ServeTest, HangupEndsNothing) {
  Serving serving({model(Script::script, "S")});
  ASSERT_GT(serving.port, 0) << serving.line;
  serving.program.signal(SIGHUP);
  ::usleep(100000);
  Client c(serving.port);
  c.get("/health");
  EXPECT_EQ(c.read_answer().status, 200);
  c.close();
  serving.program.signal(SIGTERM);
  const ProgramResult result = serving.finish();
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.err, HasSubstr("nothing to read again"));
}

// As when a log collector at the other end of a pipe has died: notes go nowhere, answers go on.
TEST_F(ServeTest, GoesOnWhenNobodyReadsItsNotes) {
  Serving serving({model(Script::loop, "L"), "--ctx-size", "100000", "--log-format", "text"});
  ASSERT_GT(serving.port, 0) << serving.line;
  ::close(serving.program.errors);
  serving.program.errors = ::open("/dev/null", O_RDONLY);
  serving.program.signal(SIGHUP);
  ::usleep(100000);
  Client c(serving.port);
  c.post(
      "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":"x"}],"stream":true,"max_tokens":2000})");
  EXPECT_EQ(c.read_head().status, 200);
  serving.program.signal(SIGTERM);
  std::string rest;
  while (const auto chunk = c.read_chunk()) {
    rest += *chunk;
  }
  EXPECT_THAT(rest, testing::EndsWith("data: [DONE]\n\n"));
  c.close();
  EXPECT_EQ(serving.finish().status, 0);
}

// A prompt that was computed before, as a chat and in whatever request begins with it.
TEST_F(ServeTest, GoesOnFromAPromptCacheFile) {
  const std::string folder = model(Script::script, "S");
  const std::string file = testing::TempDir() + "quince_serve_cache_" + std::to_string(::getpid());
  const ProgramResult built = run_program(
      {"cache", "build", folder, "--prompt", "one two three four five", "--raw", "-o", file});
  ASSERT_EQ(built.status, 0) << built.err;
  Serving serving({folder, "--prompt-cache-file", file});
  ASSERT_GT(serving.port, 0) << serving.finish().err;
  Client c(serving.port);
  c.post("/v1/completions", R"({"prompt": "one two three four five six seven", "max_tokens": 1})");
  const Answer answer = c.read_answer();
  EXPECT_GT(
      answer.json().at("usage").at("prompt_tokens_details").at("cached_tokens").as_int64(), 15)
      << answer.body;
  c.close();
  serving.program.signal(SIGTERM);
  EXPECT_THAT(serving.finish().err, HasSubstr("tokens are known to prompts"));
  std::ofstream(file) << "damaged, and long enough to have a header";
  const ProgramResult bad =
      run_program({"serve", folder, "--port", "0", "--prompt-cache-file", file});
  EXPECT_EQ(bad.status, 2);
  EXPECT_THAT(bad.err, HasSubstr(file));
  std::filesystem::remove(file);
}

// systemd is told when the model is there, and when the end begins.
TEST_F(ServeTest, TellsItsServiceManager) {
  const std::string path = testing::TempDir() + "quince_notify_" + std::to_string(::getpid());
  ::unlink(path.c_str());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(path.size(), sizeof(address.sun_path));
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  const int manager = ::socket(AF_UNIX, SOCK_DGRAM, 0);
  ASSERT_EQ(::bind(manager, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const timeval limit{20, 0};
  ::setsockopt(manager, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  const auto told = [&] {
    char buffer[1024];
    const ssize_t size = ::recv(manager, buffer, sizeof(buffer), 0);
    return std::string(buffer, static_cast<size_t>(std::max<ssize_t>(0, size)));
  };
  ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
  Serving serving({model(Script::script, "S")});
  ::unsetenv("NOTIFY_SOCKET");
  ASSERT_GT(serving.port, 0);
  std::string message = told();
  while (message.starts_with("STATUS=loading the model, ")) {
    EXPECT_THAT(message, HasSubstr("EXTEND_TIMEOUT_USEC="));
    message = told();
  }
  EXPECT_THAT(message, testing::StartsWith("READY=1\nSTATUS="));
  EXPECT_THAT(message, HasSubstr(std::to_string(serving.port)));
  serving.program.signal(SIGTERM);
  EXPECT_THAT(told(), testing::StartsWith("STOPPING=1\n"));
  EXPECT_EQ(serving.finish().status, 0);
  ::close(manager);
  ::unlink(path.c_str());
}

TEST_F(ServeTest, LinesForEveryRequest) {
  Serving serving({model(Script::script, "S"), "--log-format", "json", "--quiet"});
  ASSERT_GT(serving.port, 0);
  Client c(serving.port);
  c.get("/health");
  EXPECT_EQ(c.read_answer().status, 200);
  serving.program.signal(SIGTERM);
  const ProgramResult result = serving.finish();
  EXPECT_EQ(result.status, 0);
  const size_t begin = result.err.find("{\"time\":");
  ASSERT_NE(begin, std::string::npos) << result.err;
  const auto line =
      boost::json::parse(result.err.substr(begin, result.err.find('\n', begin) - begin));
  EXPECT_EQ(line.at("path"), "/health");
  EXPECT_EQ(line.at("status"), 200);
}

// HTTP-10.
TEST_F(ServeTest, APortThatIsTaken) {
  Serving first({model(Script::script, "S")});
  ASSERT_GT(first.port, 0);
  const std::string port = std::to_string(first.port);
  const ProgramResult second = run_program({"serve", model(Script::script, "S"), "--port", port});
  EXPECT_EQ(second.status, 2);
  EXPECT_THAT(second.err, HasSubstr(port));
  EXPECT_THAT(second.err, HasSubstr("another program is listening"));
  EXPECT_EQ(second.out, "");
  Client c(first.port);
  c.get("/health");
  EXPECT_EQ(c.read_answer().status, 200);
}

TEST_F(ServeTest, FlagsThatCannotBe) {
  const std::string folder = model(Script::script, "S");
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{}, "no MODEL"},
      {{folder, "--port", "70000"}, "--port"},
      {{folder, "--port", "-1"}, "--port"},
      {{folder, "--host", "999.1.1.1"}, "999.1.1.1"},
      {{folder, "--timeout", "1e18"}, "--timeout 1e18"},
      {{folder, "--drain", "1e300"}, "--drain 1e300"},
      {{folder, "--alias", "a,,b"}, "--alias"},
      {{folder, "--slot-save-path", "x"}, "--slot-save-path"},
      {{folder, "--lora", "x"}, "--lora"},
      {{folder, "--prompt-cache-file", "/nowhere/c"}, "/nowhere/c"},
      {{folder, "-ngl", "many"}, "--n-gpu-layers"},
      {{folder, "--pooling", "max"}, "--pooling"},
      {{folder, "--log-format", "xml"}, "--log-format"},
      {{folder, "--log-prompts"}, "--log-format"},
      {{folder, "--ssl-cert-file", "c.pem"}, "--ssl-key-file"},
      {{folder, "--ssl-key-file", "k.pem"}, "--ssl-cert-file"},
      {{folder, "--ssl-key-file", "", "--ssl-cert-file", ""}, "empty"},
      {{"/nowhere/model.gguf", "--ssl-key-file", "/no/k", "--ssl-cert-file", "/no/c"}, "/no/c"},
      {{folder, "--log-format", "json", "--log-file", "/dev/null/x"}, "/dev/null/x"},
      {{folder, "--reasoning-budget", "-2"}, "--reasoning-budget"},
      {{folder, "--temp", "-1"}, "--temp"},
      {{folder, "-np", "0"}, "--parallel"},
      {{folder, "--chat-template-file", "/nowhere"}, "/nowhere"},
      {{"/nowhere/model.gguf", "--port", "0"}, "/nowhere/model.gguf"}};
  for (const auto& [arguments, message] : cases) {
    std::vector<std::string> all{"serve"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const ProgramResult result = run_program(all);
    EXPECT_EQ(result.status, 2) << message;
    EXPECT_THAT(result.err, HasSubstr(message));
  }
}

TEST_F(ServeTest, EndsGentlyThenAtOnce) {
  Serving serving({model(Script::loop, "L"), "--ctx-size", "1000000"});
  ASSERT_GT(serving.port, 0) << serving.finish().err;
  Client c(serving.port);
  c.post("/v1/chat/completions", kStream);
  EXPECT_EQ(c.read_head().status, 200);
  serving.program.signal(SIGINT);
  // It goes on for whoever was there, and takes nobody else.
  EXPECT_TRUE(soon([&] {
    try {
      Client(serving.port).get("/health");
      return false;
    } catch (const std::runtime_error&) {
      return true;
    }
  }));
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(c.read_chunk());
  }
  serving.program.signal(SIGINT);
  EXPECT_EQ(serving.finish().status, 0);
}

}  // namespace

}  // namespace quince::test
