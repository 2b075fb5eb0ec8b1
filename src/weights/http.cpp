#include "weights/http.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <stdexcept>
#include <utility>
#include <vector>

#include <curl/curl.h>
#include <fmt/format.h>

namespace quince {

namespace {

constexpr size_t kMaxCollected = 256u << 20;
constexpr size_t kMaxErrorPage = 16u << 10;
constexpr int kMaxRedirects = 10;
constexpr long kConnectSeconds = 20;
constexpr long kSilenceSeconds = 60;  // without a byte: the connection counts as dead

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

bool is_success(int status) {
  return status >= 200 && status < 300;
}

std::string url_part(CURLU* url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, flags) != CURLUE_OK) {
    return "";
  }
  std::string result = text;
  curl_free(text);
  return result;
}

std::string lower_trimmed(std::string_view text, bool lower) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) {
    text.remove_prefix(1);
  }
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) {
    text.remove_suffix(1);
  }
  std::string result(text);
  if (lower) {
    std::transform(result.begin(), result.end(), result.begin(), [](unsigned char c) {
      return static_cast<char>(std::tolower(c));
    });
  }
  return result;
}

struct Transfer {
  uint64_t id = 0;
  HttpRequest request;
  HttpClient::Done done;
  HttpResult result;
  CURL* easy = nullptr;
  curl_slist* header_list = nullptr;
  std::string first_origin;
  int redirects = 0;
  std::exception_ptr thrown;  // by on_body, which C code must not see
  bool cancelled = false;
  char error_text[CURL_ERROR_SIZE] = "";

  ~Transfer() {
    curl_easy_cleanup(easy);
    curl_slist_free_all(header_list);
  }
};

size_t take_header(char* data, size_t size, size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const std::string_view line(data, size * count);
  if (line.starts_with("HTTP/")) {
    transfer.result.head.headers.clear();  // of an interim answer
    long status = 0;
    curl_easy_getinfo(transfer.easy, CURLINFO_RESPONSE_CODE, &status);
    transfer.result.head.status = static_cast<int>(status);
  } else if (const size_t colon = line.find(':'); colon != std::string_view::npos) {
    transfer.result.head.headers[lower_trimmed(line.substr(0, colon), true)] =
        lower_trimmed(line.substr(colon + 1), false);
  }
  return size * count;
}

size_t take_body(char* data, size_t size, size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const size_t bytes = size * count;
  if (transfer.cancelled) {
    return 0;
  }
  long status = 0;
  curl_easy_getinfo(transfer.easy, CURLINFO_RESPONSE_CODE, &status);
  transfer.result.head.status = static_cast<int>(status);
  HttpResult& result = transfer.result;
  if (!is_success(result.head.status)) {
    result.body.append(
        data, std::min(bytes, kMaxErrorPage - std::min(kMaxErrorPage, result.body.size())));
    return bytes;
  }
  if (!transfer.request.on_body) {
    if (result.body.size() + bytes > kMaxCollected) {
      return 0;
    }
    result.body.append(data, bytes);
    return bytes;
  }
  try {
    if (transfer.request.on_body({reinterpret_cast<const std::byte*>(data), bytes}, result.head)) {
      return bytes;
    }
    result.stopped = true;
  } catch (...) {
    transfer.thrown = std::current_exception();
  }
  return 0;
}

}  // namespace

const std::string* HttpHead::header(const std::string& name) const {
  const auto at = headers.find(name);
  return at == headers.end() ? nullptr : &at->second;
}

bool HttpResult::is_transient() const {
  const int s = head.status;
  return !failure.empty() || s == 408 || s == 425 || s == 429 || (s >= 500 && s != 501);
}

std::chrono::seconds HttpResult::retry_after() const {
  const std::string* text = head.header("retry-after");
  int seconds = 0;
  if (text) {  // a date, which is allowed too, counts as nothing said
    std::from_chars(text->data(), text->data() + text->size(), seconds);
  }
  return std::chrono::seconds(std::max(seconds, 0));
}

struct HttpClient::Impl {
  CURLM* multi = nullptr;
  uint64_t last_id = 0;
  bool in_callbacks = false;  // libcurl's multi functions must not be called from there
  std::map<uint64_t, std::unique_ptr<Transfer>> transfers;

  void begin(Transfer& transfer);
  void drop_cancelled();
  void finish(Transfer& transfer, CURLcode code);
  bool redirect(Transfer& transfer);
};

HttpClient::HttpClient() : impl_(std::make_unique<Impl>()) {
  static const CURLcode once = curl_global_init(CURL_GLOBAL_DEFAULT);
  impl_->multi = once == CURLE_OK ? curl_multi_init() : nullptr;
  if (!impl_->multi) {
    throw std::runtime_error("[http] libcurl does not start");
  }
}

HttpClient::~HttpClient() {
  for (auto& [id, transfer] : impl_->transfers) {
    curl_multi_remove_handle(impl_->multi, transfer->easy);
  }
  impl_->transfers.clear();
  curl_multi_cleanup(impl_->multi);
}

void HttpClient::Impl::begin(Transfer& transfer) {
  const HttpRequest& request = transfer.request;
  transfer.result = {};
  transfer.result.head.url = request.url;
  curl_slist_free_all(std::exchange(transfer.header_list, nullptr));
  if (!request.token.empty() && url_origin(request.url) == transfer.first_origin) {
    transfer.header_list =
        curl_slist_append(nullptr, ("Authorization: Bearer " + request.token).c_str());
  }
  CURL* easy = transfer.easy;
  curl_easy_reset(easy);
  curl_easy_setopt(easy, CURLOPT_URL, request.url.c_str());
#if LIBCURL_VERSION_NUM >= 0x075500
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
#else
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
#endif
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_USERAGENT, "quince");
  curl_easy_setopt(easy, CURLOPT_NOBODY, request.head ? 1L : 0L);
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, transfer.header_list);
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_header);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, &transfer);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, kSilenceSeconds);
  curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, 256L * 1024);
  // Companies with an authority of their own name it as other tools do.
  for (const char* name : {"CURL_CA_BUNDLE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"}) {
    if (const char* file = std::getenv(name); file && *file) {
      curl_easy_setopt(easy, CURLOPT_CAINFO, file);
      break;
    }
  }
  if (request.range_begin) {
    const std::string range = fmt::format("{}-{}", *request.range_begin, request.range_end);
    curl_easy_setopt(easy, CURLOPT_RANGE, range.c_str());
  }
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, transfer.error_text);
  curl_easy_setopt(easy, CURLOPT_PRIVATE, &transfer);
  curl_multi_add_handle(multi, easy);
}

uint64_t HttpClient::start(HttpRequest request, Done done) {
  auto transfer = std::make_unique<Transfer>();
  transfer->id = ++impl_->last_id;
  transfer->first_origin = url_origin(request.url);
  transfer->request = std::move(request);
  transfer->done = std::move(done);
  transfer->easy = curl_easy_init();
  if (!transfer->easy) {
    throw std::bad_alloc();
  }
  Transfer& started = *transfer;
  impl_->transfers.emplace(started.id, std::move(transfer));
  impl_->begin(started);
  return started.id;
}

void HttpClient::cancel(uint64_t id) {
  const auto at = impl_->transfers.find(id);
  if (at == impl_->transfers.end()) {
    return;
  }
  at->second->cancelled = true;
  if (!impl_->in_callbacks) {
    curl_multi_remove_handle(impl_->multi, at->second->easy);
    impl_->transfers.erase(at);
  }
}

size_t HttpClient::active() const {
  return impl_->transfers.size();
}

// Those that were cancelled while libcurl was at work.
void HttpClient::Impl::drop_cancelled() {
  for (auto at = transfers.begin(); at != transfers.end();) {
    if (at->second->cancelled) {
      curl_multi_remove_handle(multi, at->second->easy);
      at = transfers.erase(at);
    } else {
      ++at;
    }
  }
}

// True when the answer was a redirect that is now being followed.
bool HttpClient::Impl::redirect(Transfer& transfer) {
  HttpResult& result = transfer.result;
  if (!transfer.request.follow || !is_redirect(result.head.status)) {
    return false;
  }
  const char* target = nullptr;
  curl_easy_getinfo(transfer.easy, CURLINFO_REDIRECT_URL, &target);
  if (!target || url_origin(target).empty()) {
    result.failure = "it redirects to no usable address";
    return false;
  }
  if (++transfer.redirects > kMaxRedirects) {
    result.failure = fmt::format("more than {} redirects", kMaxRedirects);
    return false;
  }
  if (transfer.request.url.starts_with("https:") &&
      !std::string_view(target).starts_with("https:")) {
    result.failure = "it redirects from https to http";
    return false;
  }
  transfer.request.url = target;
  begin(transfer);
  return true;
}

void HttpClient::Impl::finish(Transfer& transfer, CURLcode code) {
  const auto at = transfers.find(transfer.id);
  HttpResult& result = transfer.result;
  if (code != CURLE_OK && !result.stopped) {
    result.failure = transfer.error_text[0] ? transfer.error_text : curl_easy_strerror(code);
  } else if (code == CURLE_OK && redirect(transfer)) {
    return;
  }
  const std::unique_ptr<Transfer> owned = std::move(at->second);
  transfers.erase(at);
  if (owned->thrown) {
    std::rethrow_exception(owned->thrown);
  }
  owned->done(std::move(owned->result));
}

void HttpClient::poll(std::chrono::milliseconds wait) {
  int running = 0;
  impl_->in_callbacks = true;
  curl_multi_perform(impl_->multi, &running);
  impl_->in_callbacks = false;
  impl_->drop_cancelled();
  int left = 0;
  bool finished = false;
  while (CURLMsg* message = curl_multi_info_read(impl_->multi, &left)) {
    if (message->msg != CURLMSG_DONE) {
      continue;
    }
    finished = true;
    CURL* easy = message->easy_handle;
    const CURLcode code = message->data.result;
    char* user = nullptr;
    curl_easy_getinfo(easy, CURLINFO_PRIVATE, &user);
    curl_multi_remove_handle(impl_->multi, easy);  // message is gone from here on
    impl_->finish(*reinterpret_cast<Transfer*>(user), code);
  }
  if (!finished && running > 0) {
    curl_multi_poll(impl_->multi, nullptr, 0, static_cast<int>(wait.count()), nullptr);
  }
}

HttpResult HttpClient::perform(HttpRequest request, const std::function<void()>& check) {
  std::optional<HttpResult> result;
  const uint64_t id = start(std::move(request), [&](HttpResult done) { result = std::move(done); });
  try {
    while (!result) {
      poll(std::chrono::milliseconds(100));
      if (check) {
        check();
      }
    }
  } catch (...) {
    cancel(id);
    throw;
  }
  return std::move(*result);
}

std::string url_origin(const std::string& url) {
  const std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> parsed(curl_url(), curl_url_cleanup);
  if (!parsed || curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK) {
    return "";
  }
  const std::string scheme = url_part(parsed.get(), CURLUPART_SCHEME);
  if (scheme != "http" && scheme != "https") {
    return "";
  }
  return fmt::format(
      "{}://{}:{}",
      scheme,
      lower_trimmed(url_part(parsed.get(), CURLUPART_HOST), true),
      url_part(parsed.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT));
}

std::string url_path(const std::string& path) {
  std::string result;
  for (const char c : path) {
    if (std::isalnum(static_cast<unsigned char>(c)) ||
        std::string_view("-._~/").find(c) != std::string_view::npos) {
      result += c;
    } else {
      result += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return result;
}

}  // namespace quince
