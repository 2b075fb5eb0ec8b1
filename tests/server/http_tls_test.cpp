// The server through TLS: what HttpTest has plain, and what only TLS can get wrong.
#include "server/http_tls.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "server/certificate.h"
#include "server/http_script.h"
#include "server/tls_client.h"

namespace quince::server {

namespace {

using std::chrono::milliseconds;
using test::Client;
using test::soon;
using test::TlsClient;
using testing::HasSubstr;

class HttpTls : public test::HttpTest {
 protected:
  static void SetUpTestSuite() {
    std::filesystem::create_directories(folder());
    test::write_certificate("IP:127.0.0.1", file("cert"), file("key"));
    test::write_certificate("IP:127.0.0.1", file("other-cert"), file("other-key"));
  }
  static void TearDownTestSuite() {
    std::filesystem::remove_all(folder());
  }
  static std::filesystem::path folder() {
    return std::filesystem::path(testing::TempDir()) /
           ("quince_http_tls_" + std::to_string(::getpid()));
  }
  static std::string file(const std::string& name) {
    return (folder() / name).string();
  }
  static std::string write(const std::string& name, const std::string& text) {
    std::ofstream(file(name)) << text;
    return file(name);
  }
  void start_tls(HttpOptions options = {}) {
    options.certificate_file = file("cert");
    options.key_file = file("key");
    start(options);
  }
  TlsClient tls_client() {
    return TlsClient(server_->port());
  }
  std::string complaint(const std::string& certificate, const std::string& key) {
    try {
      server_tls(certificate, key);
    } catch (const UserError& error) {
      return error.what();
    }
    return "none";
  }
};

TEST_F(HttpTls, OneConnectionServesManyRequests) {
  start_tls();
  EXPECT_THAT(server_->url(), testing::StartsWith("https://127.0.0.1:"));
  TlsClient c = tls_client();
  EXPECT_EQ(c.version(), "TLSv1.3");
  for (const size_t size : {size_t{4}, size_t{100'000}, size_t{3'000'000}}) {
    const std::string body(size, 'b');
    ASSERT_TRUE(c.post("/a", body));
    EXPECT_EQ(c.read_answer().body, "POST /a [none] " + body);
  }
  c.send("GET /x HTTP/1.0\r\n\r\n");
  EXPECT_EQ(c.read_answer().body, "GET /x [none] ");
  EXPECT_TRUE(c.closed_by_server());
  EXPECT_TRUE(c.was_told_goodbye());
  EXPECT_TRUE(soon([&] { return server_->connections() == 0; }, 3));
}

TEST_F(HttpTls, TheCertificateIsReadAgain) {
  const std::string certificate = file("live-cert");
  const std::string key = file("live-key");
  const auto put = [&](const std::string& which) {
    const auto how = std::filesystem::copy_options::overwrite_existing;
    std::filesystem::copy_file(file(which + "cert"), certificate, how);
    std::filesystem::copy_file(file(which + "key"), key, how);
  };
  put("");
  HttpOptions options;
  options.certificate_file = certificate;
  options.key_file = key;
  start(options);
  TlsClient old = tls_client();
  put("other-");
  EXPECT_EQ(tls_client().certificate(), old.certificate());
  server_->reload_certificate();
  TlsClient fresh = tls_client();
  EXPECT_NE(fresh.certificate(), old.certificate());
  // What is no good, or does not go together, changes nothing.
  for (const bool missing : {true, false}) {
    if (missing) {
      std::filesystem::remove(certificate);
    } else {
      std::filesystem::copy_file(file("cert"), certificate);
    }
    EXPECT_THROW(server_->reload_certificate(), UserError);
    EXPECT_EQ(tls_client().certificate(), fresh.certificate());
  }
  for (TlsClient* c : {&old, &fresh}) {  // connections live on
    ASSERT_TRUE(c->post("/a", "b"));
    EXPECT_EQ(c->read_answer().body, "POST /a [none] b");
  }
}

TEST_F(HttpTls, RequestsMayComeBeforeTheAnswersToEarlierOnes) {
  start_tls();
  TlsClient c = tls_client();
  std::string all;
  for (int i = 0; i < 10; ++i) {
    all += "POST /slow HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n\r\nab" + std::to_string(i);
  }
  c.send(all.substr(0, all.size() - 20));  // one record, and one with the end of the last request
  ::usleep(50000);
  c.send(all.substr(all.size() - 20));
  for (int i = 0; i < 10; ++i) {
    EXPECT_THAT(c.read_answer().body, HasSubstr(" ab" + std::to_string(i)));
  }
}

// Two requests in one record: the second is there while the socket has nothing to read.
TEST_F(HttpTls, RequestsInOneRecord) {
  start_tls();
  TlsClient c = tls_client();
  const std::string one = "GET /quick HTTP/1.1\r\nHost: t\r\n\r\n";
  c.send(one + one + one);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(c.read_answer(false, 2).body, "GET /quick [none] ");
  }
}

TEST_F(HttpTls, StreamsAreSentPieceByPiece) {
  start_tls({.keep_alive = milliseconds(50)});
  TlsClient c = tls_client();
  c.get("/stream");
  c.read_head(1);
  expect_pieces(c);
  c.get("/x");
  EXPECT_EQ(c.read_answer().status, 200);
}

TEST_F(HttpTls, AClientThatGoesAwayEndsItsResponse) {
  start_tls();
  for (const std::string path : {"/stream", "/late"}) {
    for (const int way : {0, 1, 2, 3}) {
      TlsClient c = tls_client();
      c.get(path);
      ASSERT_TRUE(soon([&] { return handler_.script.alive == 1; })) << path;
      way == 0 ? c.close() : way == 1 ? c.reset() : way == 2 ? c.end_writing() : c.say_goodbye();
      EXPECT_TRUE(soon([&] { return handler_.script.alive == 0; }, 1)) << path << way;
    }
  }
  EXPECT_TRUE(soon([&] { return server_->connections() == 0; }));
}

TEST_F(HttpTls, SlowReaders) {
  start_tls({.send_buffer = 8 << 10, .piece = 4096, .write_time = milliseconds(500)});
  TlsClient slow(server_->port(), {.receive_buffer = 4096});
  slow.get("/stream");
  ASSERT_TRUE(soon([&] { return handler_.script.alive == 1; }));
  handler_.script.give(std::string(20 << 20, 'x'));
  ::usleep(100000);
  EXPECT_LT(handler_.script.pulled, 10 << 20);
  EXPECT_TRUE(soon([&] { return handler_.script.alive == 0; }, 10));
}

TEST_F(HttpTls, IdleAndUnfinishedConnectionsAreClosed) {
  start_tls({.header_time = milliseconds(200), .idle_time = milliseconds(300)});
  Client silent = client();  // not even a handshake
  Client half = client();
  half.send(std::string("\x16\x03\x01\x02\x00\x01", 6));
  TlsClient idle = tls_client();
  TlsClient head = tls_client();
  head.send("GET / HT");
  EXPECT_TRUE(silent.closed_by_server(2));
  EXPECT_TRUE(half.closed_by_server(2));
  EXPECT_EQ(head.read_answer().status, 408);
  EXPECT_TRUE(head.closed_by_server(2));
  EXPECT_TRUE(idle.closed_by_server(2));
  EXPECT_TRUE(idle.was_told_goodbye());
  EXPECT_TRUE(soon([&] { return server_->connections() == 0; }));
}

TEST_F(HttpTls, DrainingLetsResponsesEnd) {
  start_tls();
  TlsClient idle = tls_client();
  idle.get("/x");
  idle.read_answer();
  Client no_handshake = client();
  TlsClient busy = tls_client();
  busy.get("/late");
  ASSERT_TRUE(soon([&] { return handler_.script.alive == 1; }));
  std::thread end([&] {
    EXPECT_TRUE(idle.closed_by_server(2));
    EXPECT_TRUE(no_handshake.closed_by_server(2));
    handler_.script.give("done", true);
    const auto answer = busy.read_answer();
    EXPECT_EQ(answer.body, "done");
    EXPECT_EQ(answer.headers.at("connection"), "close");
    EXPECT_TRUE(busy.closed_by_server());
    busy.close();
  });
  EXPECT_TRUE(server_->drain(std::chrono::seconds(10)));
  end.join();
}

TEST_F(HttpTls, OtherProtocolsEndOnlyTheirConnection) {
  start_tls();
  TlsClient good = tls_client();
  Client http = client();
  http.get("/x");
  const auto answer = http.read_answer();
  EXPECT_EQ(answer.status, 400);
  EXPECT_THAT(answer.body, HasSubstr("https://"));
  EXPECT_TRUE(http.closed_by_server(3));
  for (const std::string& text :
       {std::string("SSH-2.0-x\r\n"),
        std::string(30000, 'x'),
        std::string("\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", 10)}) {
    Client odd = client();
    odd.send(text);
    odd.end_writing();
    EXPECT_TRUE(soon([&] { return odd.closed_by_server(3); }, 5));
  }
  EXPECT_EQ(handler_.handled, 0);
  good.get("/x");
  EXPECT_EQ(good.read_answer().status, 200);
}

TEST_F(HttpTls, OnlyWhatIsSafeAndSpokenIsAgreedOn) {
  start_tls();
  const int port = server_->port();
  EXPECT_THROW(TlsClient(port, {.most_version = TLS1_VERSION}), std::runtime_error);
  EXPECT_THROW(TlsClient(port, {.most_version = TLS1_1_VERSION}), std::runtime_error);
  TlsClient old(port, {.most_version = TLS1_2_VERSION});
  old.get("/x");
  EXPECT_EQ(old.read_answer().status, 200);
  EXPECT_EQ(TlsClient(port, {.protocols = "\x02h2\x08http/1.1"}).protocol(), "http/1.1");
  EXPECT_EQ(TlsClient(port, {.protocols = "\x08http/1.0"}).protocol(), "http/1.0");
  EXPECT_EQ(TlsClient(port).protocol(), "");
  EXPECT_THROW(TlsClient(port, {.protocols = "\x02h2"}), std::runtime_error);
}

TEST_F(HttpTls, FilesThatAreNoGood) {
  const std::string cert = file("cert"), key = file("key");
  EXPECT_EQ(complaint(cert, key), "none");
  const auto expect = [&](const std::string& text, const std::string& bad, const char* why) {
    EXPECT_THAT(text, testing::AllOf(HasSubstr(bad), HasSubstr(why)));
  };
  expect(complaint(file("no"), key), file("no"), "No such file");
  expect(complaint(cert, file("no")), file("no"), "No such file");
  expect(complaint(folder().string(), key), folder().string(), "cannot be read");
  const std::string empty = write("empty", ""), text = write("text", "no certificate\n");
  expect(complaint(empty, key), empty, "it is empty");
  expect(complaint(cert, empty), empty, "it is empty");
  expect(complaint(text, key), text, "is no certificate that can be used");
  expect(complaint(cert, text), text, "is no private key that can be used");
  expect(complaint(key, cert), key, "is no certificate that can be used");
  expect(
      complaint(cert, file("other-key")), file("other-key"), "is not the key of the certificate");
  EXPECT_THROW(start({.certificate_file = cert, .key_file = text}), UserError);
}

TEST_F(HttpTls, KeysThatNeedMoreThanTheirFile) {
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> curve(
      EVP_EC_gen("P-256"), EVP_PKEY_free);
  const auto write_key = [&](const std::string& name, const EVP_CIPHER* cipher) {
    FILE* to = std::fopen(file(name).c_str(), "w");
    char word[] = "word";
    PEM_write_PrivateKey(to, curve.get(), cipher, nullptr, 0, nullptr, cipher ? word : nullptr);
    std::fclose(to);
  };
  write_key("curve", nullptr);
  write_key("locked", EVP_aes_128_cbc());
  EXPECT_THAT(complaint(file("cert"), file("curve")), HasSubstr("is not the key of"));
  EXPECT_THAT(complaint(file("cert"), file("locked")), HasSubstr("openssl pkey"));
}

}  // namespace

}  // namespace quince::server
