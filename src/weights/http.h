// HTTP(S) requests over libcurl's multi interface: several at once on the thread that calls poll().
// Redirects are followed here and not by libcurl, so that a token never goes to another origin.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace quince {

// Of the last answer of a chain of redirects. Header names are lower case.
struct HttpHead {
  int status = 0;  // 0: no answer came
  std::map<std::string, std::string> headers;
  std::string url;  // that gave this answer

  const std::string* header(const std::string& name) const;
};

struct HttpRequest {
  std::string url;
  bool head = false;  // HEAD instead of GET
  bool follow = true;
  std::string token;  // "Authorization: Bearer <token>", to the origin of url only
  std::optional<uint64_t> range_begin;
  uint64_t range_end = 0;  // of the last byte wanted
  // Gets the body of a 2xx answer piece by piece; false ends the transfer. Absent: it is collected.
  std::function<bool(std::span<const std::byte>, const HttpHead&)> on_body;
};

struct HttpResult {
  HttpHead head;
  std::string body;      // collected, or the beginning of an error's page
  std::string failure;   // why no complete answer came ("" when one did)
  bool stopped = false;  // on_body said so

  // No answer, a busy server: asking again may help.
  bool is_transient() const;
  // How long the server wants to be left alone; 0 when it does not say.
  std::chrono::seconds retry_after() const;
};

class HttpClient {
 public:
  HttpClient();
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  using Done = std::function<void(HttpResult)>;
  // Returns an id for cancel(). done is called from poll(), never from here; not after a cancel().
  uint64_t start(HttpRequest request, Done done);
  void cancel(uint64_t id);
  size_t active() const;

  // Moves data and calls callbacks; waits for activity at most this long. Callbacks may start and
  // cancel requests; what they throw leaves poll().
  void poll(std::chrono::milliseconds wait);

  // Waits for one answer. check is called several times a second; what it throws ends the waiting.
  HttpResult perform(HttpRequest request, const std::function<void()>& check = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// "https://host:443" of a URL; "" when it is none for http or https.
std::string url_origin(const std::string& url);
// Percent-encodes all but unreserved characters and '/'.
std::string url_path(const std::string& path);

}  // namespace quince
