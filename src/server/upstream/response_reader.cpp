#include "server/upstream/response_reader.h"

#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>

#include "server/http_text.h"

namespace quince::server {

namespace http = boost::beast::http;
using boost::system::error_code;

namespace {

class Parser : public http::basic_parser<false> {
 public:
  Parser() {
    eager(true);
    header_limit(static_cast<uint32_t>(ResponseReader::kMostHeader));
    body_limit(boost::none);
  }

  int status = 0;
  Headers headers;
  std::string piece;

 protected:
  using Text = boost::beast::string_view;

  void on_request_impl(http::verb, Text, Text, int, error_code&) override {}
  void on_response_impl(int code, Text, int, error_code&) override {
    status = code;
  }
  void on_field_impl(http::field, Text name, Text value, error_code&) override {
    headers.emplace_back(std::string(name), std::string(value));
  }
  void on_header_impl(error_code&) override {}
  void on_body_init_impl(const boost::optional<uint64_t>&, error_code&) override {}
  size_t on_body_impl(Text body, error_code&) override {
    piece.append(body.data(), body.size());
    return body.size();
  }
  void on_chunk_header_impl(uint64_t, Text, error_code&) override {}
  size_t on_chunk_body_impl(uint64_t, Text body, error_code&) override {
    piece.append(body.data(), body.size());
    return body.size();
  }
  void on_finish_impl(error_code&) override {}
};

}  // namespace

struct ResponseReader::Impl {
  std::unique_ptr<Parser> parser = std::make_unique<Parser>();
  std::string buffer;  // not yet parsed
  bool surplus = false;
  int interim = 0;
};

ResponseReader::ResponseReader() : impl_(std::make_unique<Impl>()) {}
ResponseReader::~ResponseReader() = default;
ResponseReader::ResponseReader(ResponseReader&&) noexcept = default;
ResponseReader& ResponseReader::operator=(ResponseReader&&) noexcept = default;

void ResponseReader::add(std::string_view bytes, error_code& error) {
  constexpr int kMostInterim = 8;
  error = {};
  impl_->buffer += bytes;
  size_t used = 0;
  while (!error && used < impl_->buffer.size() && !impl_->parser->is_done()) {
    const size_t taken = impl_->parser->put(
        boost::asio::buffer(impl_->buffer.data() + used, impl_->buffer.size() - used), error);
    used += taken;
    const int status = impl_->parser->status;
    if (!error && impl_->parser->is_header_done() && status >= 100 && status < 200) {
      // "100 Continue", "103 Early Hints": the response is still to come.
      if (++impl_->interim > kMostInterim || status == 101) {
        error = http::error::bad_status;
        break;
      }
      impl_->parser = std::make_unique<Parser>();
    } else if (!error && taken == 0) {
      break;
    }
  }
  impl_->buffer.erase(0, used);
  if (error == http::error::need_more) {
    error = {};
    if (impl_->buffer.size() > 2 * kMostHeader) {
      error = http::error::header_limit;  // or the line of a chunk
    }
  }
  impl_->surplus = impl_->parser->is_done() && !impl_->buffer.empty();
}

void ResponseReader::closed(error_code& error) {
  error = {};
  if (!impl_->parser->got_some()) {
    error = http::error::end_of_stream;
  } else if (!impl_->parser->is_done()) {
    impl_->parser->put_eof(error);
  }
}

bool ResponseReader::has_header() const {
  return impl_->parser->is_header_done();
}

bool ResponseReader::done() const {
  return impl_->parser->is_done();
}

bool ResponseReader::keeps_alive() const {
  return done() && impl_->parser->keep_alive() && !impl_->surplus;
}

int ResponseReader::status() const {
  return impl_->parser->status;
}

const Headers& ResponseReader::headers() const {
  return impl_->parser->headers;
}

std::string_view ResponseReader::header(std::string_view name) const {
  for (const auto& [key, value] : impl_->parser->headers) {
    if (same_word(key, name)) {
      return value;
    }
  }
  return "";
}

std::string ResponseReader::take() {
  return std::exchange(impl_->parser->piece, {});
}

}  // namespace quince::server
