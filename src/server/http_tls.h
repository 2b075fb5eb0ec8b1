// What a server's TLS is made of: its certificate, its key, and what it offers. Internal to the
// files http_*.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include <boost/asio/ssl/context.hpp>

#include "server/http_asio.h"

namespace quince::server {

// TLS 1.2 and later; by ALPN (RFC 7301) HTTP/1.1, or 1.0. Both files in PEM; that of the
// certificate has the certificates of its authorities behind it. Throws UserError naming the file
// and the remedy.
std::unique_ptr<asio::ssl::context> server_tls(
    const std::string& certificate_file, const std::string& key_file);

// The same, to be read again while connections go on with what they began with. Any thread.
class TlsSource {
 public:
  // No files: no TLS.
  TlsSource(std::string certificate_file, std::string key_file);

  std::shared_ptr<asio::ssl::context> current() const;  // null: plain
  // For connections that begin from now on. Throws UserError: then all stays as it was.
  void reload();

 private:
  std::string certificate_file_;
  std::string key_file_;
  mutable std::mutex mutex_;
  std::shared_ptr<asio::ssl::context> current_;
};

// Whether the client spoke HTTP where TLS was expected.
bool is_plain_http(const boost::system::error_code& handshake);

}  // namespace quince::server
