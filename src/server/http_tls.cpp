#include "server/http_tls.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <string_view>
#include <utility>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/sslerr.h>
#include <openssl/x509err.h>
#include <boost/asio/ssl/error.hpp>

#include "base/error.h"

namespace quince::server {

namespace {

using Context = asio::ssl::context;
using Error = boost::system::error_code;

void check_readable(const std::string& what, const std::string& file) {
  errno = 0;
  if (std::ifstream stream(file); !stream || stream.peek() == std::ifstream::traits_type::eof()) {
    throw UserError(
        "{} {}: cannot be read ({})",
        what,
        file,
        errno != 0 ? std::strerror(errno) : "it is empty");
  }
}

bool is(const Error& error, int library, int reason) {
  const auto code = static_cast<unsigned long>(error.value());
  return error.category() == asio::error::get_ssl_category() && ERR_GET_LIB(code) == library &&
         ERR_GET_REASON(code) == reason;
}

void use_certificate(Context& tls, const std::string& file) {
  check_readable("--ssl-cert-file", file);
  Error error;
  static_cast<void>(tls.use_certificate_chain_file(file, error));
  if (error) {
    throw UserError(
        "--ssl-cert-file {}: is no certificate that can be used ({}); want PEM, the server's own "
        "first and those of its authorities behind it",
        file,
        error.message());
  }
}

void use_key(Context& tls, const std::string& file, const std::string& certificate_file) {
  check_readable("--ssl-key-file", file);
  Error error;
  const auto locked = std::make_shared<bool>(false);
  static_cast<void>(tls.set_password_callback(
      [locked](size_t, Context::password_purpose) {  // without it OpenSSL asks at the terminal
        *locked = true;
        return std::string();
      },
      error));
  static_cast<void>(tls.use_private_key_file(file, Context::pem, error));
  if (*locked) {
    throw UserError(
        "--ssl-key-file {}: needs a passphrase; `openssl pkey -in {} -out FILE` writes the key "
        "without one",
        file,
        file);
  }
  // A key of another kind than the certificate's has a place of its own: only the second finds it.
  const bool other = is(error, ERR_LIB_X509, X509_R_KEY_VALUES_MISMATCH) ||
                     is(error, ERR_LIB_X509, X509_R_KEY_TYPE_MISMATCH);
  if (error && !other) {
    throw UserError(
        "--ssl-key-file {}: is no private key that can be used ({}); want PEM",
        file,
        error.message());
  }
  if (other || SSL_CTX_check_private_key(tls.native_handle()) != 1) {
    ERR_clear_error();
    throw UserError(
        "--ssl-key-file {}: is not the key of the certificate in {}; give the two that were made "
        "together",
        file,
        certificate_file);
  }
}

// RFC 7301, 3.2: who offers only what is not spoken here is told so at once.
int choose_protocol(
    SSL*,
    const unsigned char** chosen,
    unsigned char* size,
    const unsigned char* offered,
    unsigned offered_size,
    void*) {
  for (const std::string_view spoken : {"http/1.1", "http/1.0"}) {  // what curl --http1.0 offers
    for (unsigned at = 0; at < offered_size; at += 1U + offered[at]) {
      const std::string_view name(reinterpret_cast<const char*>(offered + at + 1), offered[at]);
      if (name == spoken) {
        *chosen = offered + at + 1;
        *size = offered[at];
        return SSL_TLSEXT_ERR_OK;
      }
    }
  }
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

}  // namespace

std::unique_ptr<Context> server_tls(
    const std::string& certificate_file, const std::string& key_file) {
  auto tls = std::make_unique<Context>(Context::tls_server);
  Error ignored;
  static_cast<void>(tls->set_options(
      Context::default_workarounds | Context::no_sslv2 | Context::no_sslv3 | Context::no_tlsv1 |
          Context::no_tlsv1_1 | Context::no_compression | SSL_OP_NO_RENEGOTIATION,
      ignored));
  use_certificate(*tls, certificate_file);
  use_key(*tls, key_file, certificate_file);
  SSL_CTX_set_alpn_select_cb(tls->native_handle(), choose_protocol, nullptr);
  return tls;
}

TlsSource::TlsSource(std::string certificate_file, std::string key_file)
    : certificate_file_(std::move(certificate_file)), key_file_(std::move(key_file)) {
  reload();
}

std::shared_ptr<Context> TlsSource::current() const {
  const std::scoped_lock lock(mutex_);
  return current_;
}

void TlsSource::reload() {
  if (certificate_file_.empty()) {
    return;
  }
  std::shared_ptr<Context> fresh = server_tls(certificate_file_, key_file_);
  const std::scoped_lock lock(mutex_);
  current_.swap(fresh);
}

bool is_plain_http(const Error& handshake) {
  return is(handshake, ERR_LIB_SSL, SSL_R_HTTP_REQUEST);
}

}  // namespace quince::server
