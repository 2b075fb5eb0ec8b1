// Upstreams behind TLS: whose certificate is not good gets neither the request nor the key.
#include <atomic>
#include <filesystem>
#include <thread>

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>

#include "base/error.h"
#include "server/certificate.h"
#include "server/gatewayed.h"

namespace quince::test {

namespace {

using testing::HasSubstr;
using namespace quince::server;
namespace asio = boost::asio;

// Answers requests one connection after another.
class TlsUpstream {
 public:
  explicit TlsUpstream(const std::string& names)
      : certificate(testing::TempDir() + "quince_tls_" + std::to_string(::getpid()) + ".pem"),
        key_(certificate + ".key"),
        acceptor_(context_, {asio::ip::address_v4::loopback(), 0}) {
    write_certificate(names, certificate, key_);
    tls_.use_certificate_file(certificate, asio::ssl::context::pem);
    tls_.use_private_key_file(key_, asio::ssl::context::pem);
    port = acceptor_.local_endpoint().port();
    thread_ = std::thread([this] { run(); });
  }
  ~TlsUpstream() {
    stopping_ = true;
    try {
      Client wakes(port);
    } catch (const std::exception&) {
    }
    thread_.join();
    std::filesystem::remove(certificate);
    std::filesystem::remove(key_);
  }
  TlsUpstream(const TlsUpstream&) = delete;
  TlsUpstream& operator=(const TlsUpstream&) = delete;

  std::string certificate;
  int port = 0;
  std::atomic<int> requests = 0;
  std::atomic<int> connections = 0;

 private:
  void run() {
    while (!stopping_) {
      asio::ssl::stream<asio::ip::tcp::socket> stream(context_, tls_);
      boost::system::error_code error;
      acceptor_.accept(stream.lowest_layer(), error);
      if (stopping_ || error) {
        continue;
      }
      ++connections;
      stream.handshake(asio::ssl::stream_base::server, error);
      while (!error) {
        std::string text;
        asio::read_until(stream, asio::dynamic_buffer(text), "]}", error);
        if (!error) {
          ++requests;
          asio::write(
              stream,
              asio::buffer(
                  std::string("HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{\"ok\":true}")),
              error);
        }
      }
    }
  }

  std::string key_;
  asio::io_context context_;
  asio::ssl::context tls_{asio::ssl::context::tls_server};
  asio::ip::tcp::acceptor acceptor_;
  std::thread thread_;
  std::atomic<bool> stopping_ = false;
};

std::string config_of(const std::string& host, const TlsUpstream& box, bool trusted) {
  return "[upstreams.box]\nurl = \"https://" + host + ":" + std::to_string(box.port) +
         "/v1\"\nkey = \"upstream-key\"\nconnect_timeout = 3\n" +
         (trusted ? "ca_file = \"" + box.certificate + "\"\n" : "") +
         "[models.m]\nupstreams = [\"box\"]\n";
}

const std::string kBody = R"({"model":"m","messages":[{"content":"x"}]})";

TEST(UpstreamTls, AGoodCertificateIsTalkedToAndTheConnectionKept) {
  TlsUpstream box("DNS:localhost,IP:127.0.0.1");
  for (const std::string host : {"localhost", "127.0.0.1"}) {
    box.connections = 0;
    Gatewayed gateway(config_of(host, box, true));
    for (int i = 0; i < 3; ++i) {
      const Answer answer = gateway.post("/v1/chat/completions", kBody);
      EXPECT_EQ(answer.status, 200) << host << answer.body;
      EXPECT_EQ(answer.json().at("ok"), true);
    }
    EXPECT_EQ(box.connections, 1);
  }
}

TEST(UpstreamTls, NobodyElseGetsTheRequest) {
  TlsUpstream box("DNS:other.example");
  for (const bool trusted : {true, false}) {
    Gatewayed gateway(config_of("localhost", box, trusted));
    const Answer answer = gateway.post("/v1/chat/completions", kBody);
    EXPECT_EQ(answer.status, 502);
    EXPECT_THAT(answer.body, HasSubstr("certificate verify failed"));
  }
  EXPECT_EQ(box.requests, 0);
}

TEST(UpstreamTls, AnAuthoritiesFileThatIsNoneIsSaidAtOnce) {
  TlsUpstream box("DNS:localhost");
  std::ofstream(box.certificate) << "no certificate";
  EXPECT_THROW(Gatewayed(config_of("localhost", box, true)), UserError);
}

}  // namespace

}  // namespace quince::test
