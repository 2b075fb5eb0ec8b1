// A client that speaks TLS, and believes any certificate.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "server/client.h"

namespace quince::test {

class TlsClient : public Client {
 public:
  struct Offer {
    std::string protocols = {};  // of ALPN, each behind its length
    int most_version = 0;        // 0: the newest
    int receive_buffer = 0;      // 0: the system's
  };

  // Throws when no agreement is found.
  explicit TlsClient(int port) : TlsClient(port, Offer()) {}
  TlsClient(int port, const Offer& offer)
      : Client(port, offer.receive_buffer),
        context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free) {
    SSL_CTX_set_security_level(context_.get(), 0);  // or old versions are not even offered
    SSL_CTX_set_min_proto_version(context_.get(), TLS1_VERSION);
    SSL_CTX_set_max_proto_version(context_.get(), offer.most_version);
    SSL_CTX_set_alpn_protos(
        context_.get(),
        reinterpret_cast<const unsigned char*>(offer.protocols.data()),
        static_cast<unsigned>(offer.protocols.size()));
    secure_.reset(SSL_new(context_.get()));
    SSL_set_fd(secure_.get(), socket());
    if (SSL_connect(secure_.get()) != 1) {
      throw std::runtime_error("no agreement about TLS");
    }
  }

  std::string protocol() const {
    const unsigned char* name = nullptr;
    unsigned size = 0;
    SSL_get0_alpn_selected(secure_.get(), &name, &size);
    return std::string(reinterpret_cast<const char*>(name), size);
  }
  std::string version() const {
    return SSL_get_version(secure_.get());
  }
  std::string certificate() const {  // DER, of the server
    const std::unique_ptr<X509, decltype(&X509_free)> its(
        SSL_get1_peer_certificate(secure_.get()), X509_free);
    unsigned char* bytes = nullptr;
    const int size = i2d_X509(its.get(), &bytes);
    std::string out(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
    OPENSSL_free(bytes);
    return out;
  }
  // Says the end of TLS, and leaves the connection.
  void say_goodbye() {
    SSL_shutdown(secure_.get());
  }
  // Whether the server has said the end of TLS and not just closed.
  bool was_told_goodbye() const {
    return (SSL_get_shutdown(secure_.get()) & SSL_RECEIVED_SHUTDOWN) != 0;
  }

 protected:
  ssize_t put(std::string_view bytes) override {
    return SSL_write(secure_.get(), bytes.data(), static_cast<int>(bytes.size()));
  }
  ssize_t take(char* into, size_t size, double seconds) override {
    if (SSL_pending(secure_.get()) == 0 && !readable(seconds)) {
      throw std::runtime_error("nothing came from the server");
    }
    return SSL_read(secure_.get(), into, static_cast<int>(size));
  }

 private:
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_;
  struct Free {
    void operator()(SSL* secure) const {
      SSL_free(secure);
    }
  };
  std::unique_ptr<SSL, Free> secure_;
};

}  // namespace quince::test
