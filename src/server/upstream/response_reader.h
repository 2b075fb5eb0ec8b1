// An upstream's response, parsed as its bytes come. Bodies of any length: what came of one is taken
// out in pieces. Only the HTTP of RFC 9112; what breaks it is an error.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <boost/system/error_code.hpp>

#include "server/http.h"

namespace quince::server {

class ResponseReader {
 public:
  static constexpr size_t kMostHeader = size_t{64} << 10;  // bytes

  ResponseReader();
  ~ResponseReader();
  ResponseReader(ResponseReader&&) noexcept;
  ResponseReader& operator=(ResponseReader&&) noexcept;

  // Throws nothing; an error means that what came is no HTTP response, or has a header that is too
  // large.
  void add(std::string_view bytes, boost::system::error_code& error);
  // The connection was closed. An error: in the middle.
  void closed(boost::system::error_code& error);

  bool has_header() const;
  bool done() const;
  bool keeps_alive() const;  // the connection may be used again; once done()
  int status() const;
  const Headers& headers() const;
  std::string_view header(std::string_view name) const;  // "": absent
  std::string take();                                    // what came of the body

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quince::server
