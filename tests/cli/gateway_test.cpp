// quince key and quince gateway from outside.
#include <csignal>
#include <filesystem>
#include <fstream>

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "cli/run_program.h"
#include "gateway/secret.h"
#include "server/certificate.h"
#include "server/client.h"
#include "server/tls_client.h"

namespace quince::test {

namespace {

using testing::HasSubstr;
using testing::Not;

std::string hash_in(const std::string& text) {
  const size_t at = text.find("\"sha256:");
  return at == std::string::npos ? "" : text.substr(at + 1, text.find('"', at + 1) - at - 1);
}

TEST(KeyCommand, MakesAKeyAndWhatGoesIntoTheFile) {
  const ProgramResult result = run_program({"key", "new", "alice"});
  ASSERT_EQ(result.status, 0) << result.err;
  const std::string secret = result.out.substr(0, result.out.find('\n'));
  EXPECT_TRUE(secret.starts_with("qk-"));
  EXPECT_THAT(result.out, HasSubstr("[keys.alice]\nhash = \"sha256:"));
  EXPECT_TRUE(gateway::matches(secret, hash_in(result.out)));
  const ProgramResult hashed = run_program({"key", "hash", "bob"}, "my-own-secret-key\n");
  ASSERT_EQ(hashed.status, 0) << hashed.err;
  EXPECT_TRUE(gateway::matches("my-own-secret-key", hash_in(hashed.out)));
  EXPECT_THAT(hashed.out, Not(HasSubstr("my-own-secret-key")));
  EXPECT_EQ(run_program({"key", "hash"}, "short\n").status, 2);
  EXPECT_EQ(run_program({"key", "new", "a b"}).status, 2);
}

class GatewayCommand : public testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::path(testing::TempDir()) /
            ("quince_gateway_cli_" + std::to_string(::getpid()) + ".toml");
    write("");
  }
  void TearDown() override {
    std::filesystem::remove(path_);
  }
  void write(const std::string& more) {
    const std::filesystem::path other = path_.string() + ".new";
    std::ofstream(other) << "[upstreams.box]\nurl = \"http://127.0.0.1:1/v1\"\n[models.m]\n"
                            "upstreams = [\"box\"]\n"
                         << more;
    std::filesystem::rename(other, path_);
  }

  std::filesystem::path path_;
};

TEST_F(GatewayCommand, ServesReloadsAndEnds) {
  Program program({"gateway", "--config", path_.string(), "--port", "0"});
  std::string line;
  char c = 0;
  while (::read(program.output, &c, 1) == 1 && c != '\n') {
    line += c;
  }
  const size_t at = line.find("http://127.0.0.1:");
  ASSERT_NE(at, std::string::npos) << line << program.finish().err;
  EXPECT_THAT(line, HasSubstr("models: m"));
  const int port = std::atoi(line.c_str() + at + 17);
  const auto status = [&] {
    Client client(port);
    client.get("/v1/models");
    return client.read_answer().status;
  };
  EXPECT_EQ(status(), 200);
  Client client(port);
  client.post("/v1/chat/completions", R"({"model":"m","messages":[]})");
  const Answer answer = client.read_answer();
  EXPECT_EQ(answer.status, 502);
  EXPECT_THAT(answer.body, HasSubstr("box cannot be reached"));
  client.close();
  write("[keys.a]\nhash = \"" + gateway::hash_secret("a-key-that-is-long") + "\"\n");
  program.signal(SIGHUP);
  EXPECT_TRUE(soon([&] { return status() == 401; }));
  write("[keys.a]\nhahs = 1\n");
  program.signal(SIGHUP);
  ::usleep(200000);
  EXPECT_EQ(status(), 401);
  program.signal(SIGTERM);
  const ProgramResult result = program.finish();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("reloaded"));
  EXPECT_THAT(
      result.err, HasSubstr(":6: keys.a.hahs: there is no such setting; did you mean hash?"));
}

TEST_F(GatewayCommand, ReadsItsCertificateAgain) {
  const std::string certificate = path_.string() + ".pem", key = path_.string() + ".key";
  write_certificate("IP:127.0.0.1", certificate, key);
  Program program(
      {"gateway",
       "--config",
       path_.string(),
       "--port",
       "0",
       "--ssl-cert-file",
       certificate,
       "--ssl-key-file",
       key});
  std::string line;
  char c = 0;
  while (::read(program.output, &c, 1) == 1 && c != '\n') {
    line += c;
  }
  const size_t at = line.find("https://127.0.0.1:");
  ASSERT_NE(at, std::string::npos) << line << program.finish().err;
  const int port = std::atoi(line.c_str() + at + 18);
  const std::string before = TlsClient(port).certificate();
  write_certificate("IP:127.0.0.1", certificate, key);
  program.signal(SIGHUP);
  EXPECT_TRUE(soon([&] { return TlsClient(port).certificate() != before; }));
  program.signal(SIGTERM);
  const ProgramResult result = program.finish();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr(certificate + ": reloaded"));
  std::filesystem::remove(certificate);
  std::filesystem::remove(key);
}

TEST_F(GatewayCommand, WhatIsWrongIsSaidBeforeItListens) {
  write("[keys.a]\nrpm = 1\n");
  const ProgramResult bad = run_program({"gateway", "--config", path_.string(), "--port", "0"});
  EXPECT_EQ(bad.status, 2);
  EXPECT_THAT(bad.err, HasSubstr(":5: keys.a: has no hash"));
  const ProgramResult none = run_program({"gateway"});
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.err, HasSubstr("--config"));
}

}  // namespace

}  // namespace quince::test
