#include "server/upstream/passed_headers.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "server/http_text.h"

namespace quince::server {

namespace {

constexpr std::array<std::string_view, 9> kBetweenNeighbours = {
    "Connection",
    "Keep-Alive",
    "Proxy-Connection",
    "Proxy-Authenticate",
    "Proxy-Authorization",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade"};
// The gateway says these itself, or they are the client's secrets.
constexpr std::array<std::string_view, 10> kNotAsked = {
    "Host",
    "Content-Length",
    "Expect",
    "Authorization",
    "x-api-key",
    "api-key",
    "Cookie",
    "Accept-Encoding",
    "Origin",
    "Forwarded"};
constexpr std::array<std::string_view, 6> kNotAnswered = {
    "Content-Length", "Content-Type", "Server", "Set-Cookie", "Vary", "Date"};

bool is_in(std::span<const std::string_view> list, std::string_view name) {
  return std::any_of(
      list.begin(), list.end(), [&](std::string_view one) { return same_word(one, name); });
}

// Names that a Connection header adds to those between neighbours.
std::vector<std::string_view> named_by_connection(const Headers& headers) {
  std::vector<std::string_view> names;
  for (const auto& [name, value] : headers) {
    if (!same_word(name, "Connection")) {
      continue;
    }
    std::string_view rest = value;
    while (!rest.empty()) {
      const size_t comma = std::min(rest.find(','), rest.size());
      std::string_view word = rest.substr(0, comma);
      rest.remove_prefix(std::min(comma + 1, rest.size()));
      while (!word.empty() && (word.front() == ' ' || word.front() == '\t')) {
        word.remove_prefix(1);
      }
      while (!word.empty() && (word.back() == ' ' || word.back() == '\t')) {
        word.remove_suffix(1);
      }
      names.push_back(word);
    }
  }
  return names;
}

std::string encoded_path(std::string_view path) {
  std::string out;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 ||
        std::string_view("-._~/:@!$&'()*+,;=").find(c) != std::string_view::npos) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", byte);
    }
  }
  return out;
}

std::string host_of(const gateway::UpstreamConfig& upstream) {
  const bool bracketed = upstream.host.find(':') != std::string::npos;
  const std::string host = bracketed ? "[" + upstream.host + "]" : upstream.host;
  const bool usual = upstream.port == (upstream.tls ? 443 : 80);
  return usual ? host : fmt::format("{}:{}", host, upstream.port);
}

std::string key_headers(const gateway::UpstreamConfig& upstream, bool anthropic) {
  if (upstream.key.empty()) {
    return "";
  }
  return "Authorization: Bearer " + upstream.key + "\r\n" +
         (anthropic ? "x-api-key: " + upstream.key + "\r\n" : "");
}

}  // namespace

bool is_plain_path(std::string_view path) {
  const auto odd = [](unsigned char c) { return c < 32 || c == 127 || c == '\\'; };
  if (std::any_of(path.begin(), path.end(), odd)) {
    return false;
  }
  while (!path.empty()) {
    path.remove_prefix(1);  // the slash
    const size_t end = std::min(path.find('/'), path.size());
    const std::string_view part = path.substr(0, end);
    if (part == "." || part == "..") {
      return false;
    }
    path.remove_prefix(end);
  }
  return true;
}

std::string request_head(
    const HttpRequest& request, const gateway::UpstreamConfig& upstream, size_t length) {
  std::string_view path = request.path;
  // "http://host/v1" is how addresses of APIs are written, and all paths here begin with /v1.
  if (upstream.path.ends_with("/v1") && path.starts_with("/v1/")) {
    path.remove_prefix(3);
  }
  std::string head = fmt::format(
      "{} {}{}{}{} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\nAccept-Encoding: identity\r\n",
      request.method,
      upstream.path,
      encoded_path(path),
      request.query.empty() ? "" : "?",
      request.query,
      host_of(upstream),
      length);
  head += key_headers(upstream, request.path.starts_with("/v1/messages"));
  const auto named = named_by_connection(request.headers);
  for (const auto& [name, value] : request.headers) {
    if (!is_in(kBetweenNeighbours, name) && !is_in(kNotAsked, name) && !is_in(named, name) &&
        !name.starts_with("Access-Control-") && !name.starts_with("Sec-")) {
      head.append(name).append(": ").append(value).append("\r\n");
    }
  }
  return head + "\r\n";
}

std::string health_head(const gateway::UpstreamConfig& upstream) {
  return fmt::format(
      "GET {} HTTP/1.1\r\nHost: {}\r\nAccept-Encoding: identity\r\n{}\r\n",
      upstream.health,
      host_of(upstream),
      key_headers(upstream, false));
}

Headers response_headers(const ResponseReader& response) {
  Headers out;
  const auto named = named_by_connection(response.headers());
  for (const auto& [name, value] : response.headers()) {
    if (!is_in(kBetweenNeighbours, name) && !is_in(kNotAnswered, name) && !is_in(named, name) &&
        !name.starts_with("Access-Control-") && !name.starts_with("access-control-")) {
      out.emplace_back(name, value);
    }
  }
  return out;
}

}  // namespace quince::server
