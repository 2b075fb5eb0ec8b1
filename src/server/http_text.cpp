#include "server/http_text.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

namespace quince::server {

namespace {

int hex_digit(char c) {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

}  // namespace

bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

std::string percent_decoded(std::string_view text, bool plus) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 &&
                        hex_digit(text[i + 2]) >= 0;
    if (escape) {
      out += static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
      i += 2;
    } else {
      out += plus && text[i] == '+' ? ' ' : text[i];
    }
  }
  return out;
}

std::string_view origin_form(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (target.size() >= scheme.size() && same_word(target.substr(0, scheme.size()), scheme)) {
      const size_t begin = target.find_first_of("/?", scheme.size());
      return begin == std::string_view::npos ? "/" : target.substr(begin);
    }
  }
  return target;
}

std::string_view HttpRequest::header(std::string_view name) const {
  const auto found = std::find_if(
      headers.begin(), headers.end(), [&](const auto& row) { return same_word(row.first, name); });
  return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

std::optional<std::string> HttpRequest::parameter(std::string_view name) const {
  std::string_view rest = query;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('&'), rest.size());
    const std::string_view pair = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const size_t equals = std::min(pair.find('='), pair.size());
    if (percent_decoded(pair.substr(0, equals), true) == name) {
      return percent_decoded(pair.substr(std::min(equals + 1, pair.size())), true);
    }
  }
  return std::nullopt;
}

std::string_view reason_phrase(int status) {
  switch (status) {
    case 100:
      return "Continue";
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Status";
  }
}

std::string response_head(const Response& response, Framing framing, bool keep_alive) {
  std::string head =
      fmt::format("HTTP/1.1 {} {}\r\n", response.status, reason_phrase(response.status));
  const auto add = [&](std::string_view name, std::string_view value) {
    const size_t begin = head.size();
    head.append(name).append(": ").append(value);
    std::replace_if(
        head.begin() + static_cast<std::ptrdiff_t>(begin),
        head.end(),
        [](char c) { return c == '\r' || c == '\n' || c == '\0'; },
        ' ');
    head += "\r\n";
  };
  add("Server", "quince");
  if (response.status != 204 && response.status != 304) {
    add("Content-Type", response.content_type);
    if (framing == Framing::length) {
      add("Content-Length", std::to_string(response.body.size()));
    } else if (framing == Framing::chunked) {
      add("Transfer-Encoding", "chunked");
    }
  }
  for (const auto& [name, value] : response.headers) {
    add(name, value);
  }
  add("Connection", keep_alive ? "keep-alive" : "close");
  return head + "\r\n";
}

std::string chunk_head(size_t bytes) {
  return fmt::format("{:x}\r\n", bytes);
}

}  // namespace quince::server
