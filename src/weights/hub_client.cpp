#include "weights/hub_client.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "weights/json_file.h"

namespace quince {

namespace json = boost::json;

namespace {

constexpr std::chrono::seconds kLongestWait{60};

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool is_hex(std::string_view text, size_t size) {
  return text.size() == size && std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isdigit(c) || (c >= 'a' && c <= 'f');
         });
}

// Safe as a file name in the cache.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 128 && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) || c == '-' || c == '_' || c == '.';
         });
}

bool is_inside_path(std::string_view path) {
  if (path.empty() || path.size() > 1024) {
    return false;
  }
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == ".." || part.size() > 255) {
      return false;
    }
    begin = end + 1;
  }
  return std::none_of(
      path.begin(), path.end(), [](unsigned char c) { return c < 0x20 || c == '\\'; });
}

std::string unquoted(std::string text) {
  if (text.starts_with("W/")) {
    text.erase(0, 2);
  }
  std::erase(text, '"');
  return text;
}

void set_etag(HubFile& file, std::string_view source) {
  if (!file.sha256.empty()) {
    file.etag = file.sha256;
  } else if (!file.git_sha1.empty()) {
    file.etag = file.git_sha1;
  }
  if (!file.etag.empty() && !is_plain_name(file.etag)) {
    throw UserError("{}: sends a bad ETag for {}", source, file.path);
  }
}

std::string gate_advice(const HubAccess& hub, const std::string& repo) {
  return hub.token.empty()
             ? fmt::format(
                   "accept its terms at {}/{} and set HF_TOKEN to a token of your account",
                   hub.endpoint,
                   repo)
             : fmt::format(
                   "accept its terms at {}/{} with the account that HF_TOKEN belongs to",
                   hub.endpoint,
                   repo);
}

void wait(const HubAccess& hub, std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::min(time, std::chrono::milliseconds(100)));
    if (hub.check) {
      hub.check();
    }
  }
}

HttpResult ask(HttpClient& http, const HubAccess& hub, const HttpRequest& request) {
  HttpResult result = http.perform(request, hub.check);
  for (int i = 1; i < hub.attempts && result.is_transient(); ++i) {
    const std::chrono::milliseconds asked_for = std::min(result.retry_after(), kLongestWait);
    wait(hub, std::max(hub.retry_delay * i, asked_for));
    result = http.perform(request, hub.check);
  }
  return result;
}

}  // namespace

HubAccess HubAccess::from_environment() {
  const std::string offline = environment("HF_HUB_OFFLINE");
  if (!offline.empty() && offline != "0" && offline != "false" && offline != "FALSE") {
    throw UserError("HF_HUB_OFFLINE is {}: nothing is downloaded; unset it first", offline);
  }
  HubAccess hub;
  hub.endpoint = environment("HF_ENDPOINT");
  hub.token = environment("HF_TOKEN");
  if (hub.endpoint.empty()) {
    hub.endpoint = "https://huggingface.co";
  }
  while (hub.endpoint.ends_with('/')) {
    hub.endpoint.pop_back();
  }
  if (url_origin(hub.endpoint).empty()) {
    throw UserError("HF_ENDPOINT is {}, want an address as https://host", hub.endpoint);
  }
  for (const char c : hub.token) {
    if (std::iscntrl(static_cast<unsigned char>(c)) || c == ' ') {
      throw UserError("HF_TOKEN holds a space or control character");
    }
  }
  return hub;
}

void throw_hub_error(
    const HttpResult& result,
    const HubAccess& hub,
    const std::string& repo,
    std::string_view what) {
  if (!result.failure.empty()) {
    throw UserError(
        "{}: cannot get {} from {}: {}", repo, what, url_origin(hub.endpoint), result.failure);
  }
  const int status = result.head.status;
  const std::string* code_header = result.head.header("x-error-code");
  const std::string code = code_header ? *code_header : "";
  const std::string* text_header = result.head.header("x-error-message");
  const std::string text = text_header ? " (" + text_header->substr(0, 200) + ")" : "";
  if (code == "GatedRepo" || (status == 403 && code.empty())) {
    throw UserError("{}: is gated: {}{}", repo, gate_advice(hub, repo), text);
  }
  if (code == "RevisionNotFound") {
    throw UserError("{}: has no such revision{}", repo, text);
  }
  if (code == "EntryNotFound") {
    throw UserError("{}: has no file {}", repo, what);
  }
  if (status == 401 || status == 404) {
    throw UserError(
        "{}: not found at {}, or not for everybody{}; check the name{}",
        repo,
        hub.endpoint,
        text,
        hub.token.empty() ? ", and set HF_TOKEN if it is private or gated"
                          : " and that HF_TOKEN may read it");
  }
  throw UserError("{}: cannot get {}: the hub answers with status {}{}", repo, what, status, text);
}

RepoListing parse_listing(std::string_view text, std::string_view source) {
  const json::object object = parse_json_object(text, source, {.max_depth = 32});
  RepoListing listing;
  listing.commit = json_string(object, "sha", source).value_or("");
  if (!is_plain_name(listing.commit)) {
    throw UserError("{}: the hub's answer has no commit id", source);
  }
  const json::value* siblings = object.if_contains("siblings");
  if (!siblings || !siblings->is_array()) {
    throw UserError("{}: the hub's answer has no list of files", source);
  }
  for (const json::value& entry : siblings->get_array()) {
    const json::object* sibling = entry.if_object();
    HubFile file;
    file.path = sibling ? json_string(*sibling, "rfilename", source).value_or("") : "";
    if (!is_inside_path(file.path)) {
      throw UserError(
          "{}: the hub's list holds the bad file name \"{}\"", source, file.path.substr(0, 80));
    }
    auto size = json_int(*sibling, "size", source);
    const std::string blob = json_string(*sibling, "blobId", source).value_or("");
    if (const json::value* lfs = sibling->if_contains("lfs"); lfs && lfs->is_object()) {
      file.sha256 = json_string(lfs->get_object(), "sha256", source).value_or("");
      size = size ? size : json_int(lfs->get_object(), "size", source);
      if (!is_hex(file.sha256, 64)) {
        throw UserError("{}: the hub tells no sound SHA-256 of {}", source, file.path);
      }
    } else if (is_hex(blob, 40)) {
      file.git_sha1 = blob;
    }
    if (size && *size >= 0) {  // else complete() asks
      file.size = static_cast<uint64_t>(*size);
      set_etag(file, source);
    }
    listing.files.push_back(std::move(file));
  }
  return listing;
}

RepoListing list_repo(
    HttpClient& http, const HubAccess& hub, const std::string& repo, const std::string& revision) {
  HttpRequest request;
  request.url = fmt::format(
      "{}/api/models/{}/revision/{}?blobs=true", hub.endpoint, url_path(repo), url_path(revision));
  request.token = hub.token;
  HttpResult result = ask(http, hub, request);
  if (!result.failure.empty() || result.head.status != 200) {
    throw_hub_error(result, hub, repo, "the list of its files");
  }
  return parse_listing(result.body, repo);
}

std::string resolve_url(
    const HubAccess& hub,
    const std::string& repo,
    const std::string& commit,
    const std::string& path) {
  return fmt::format("{}/{}/resolve/{}/{}", hub.endpoint, url_path(repo), commit, url_path(path));
}

void complete(
    HttpClient& http,
    const HubAccess& hub,
    const std::string& repo,
    const std::string& commit,
    HubFile& file) {
  if (!file.etag.empty()) {
    return;
  }
  HttpRequest request;
  request.url = resolve_url(hub, repo, commit, file.path);
  request.head = true;
  request.follow = false;  // the hub's own answer has the facts, the store's behind it has not
  request.token = hub.token;
  HttpResult result = ask(http, hub, request);
  if (result.head.status / 100 == 3 && !result.head.header("x-linked-etag")) {
    request.follow = true;  // a renamed repository, not the way to the store
    result = ask(http, hub, request);
  }
  const HttpHead& head = result.head;
  if (!result.failure.empty() || head.status < 200 || head.status >= 400) {
    throw_hub_error(result, hub, repo, file.path);
  }
  const std::string* etag = head.header("x-linked-etag");
  etag = etag ? etag : head.header("etag");
  const std::string* size = head.header("x-linked-size");
  size = size || head.status != 200 ? size : head.header("content-length");
  if (!etag || !size) {
    throw UserError("{}: the hub tells neither size nor ETag of {}", repo, file.path);
  }
  file.etag = unquoted(*etag);
  if (is_hex(file.etag, 64)) {
    file.sha256 = file.etag;
  } else if (is_hex(file.etag, 40)) {
    file.git_sha1 = file.etag;
  }
  const auto [end, error] = std::from_chars(size->data(), size->data() + size->size(), file.size);
  if (error != std::errc() || end != size->data() + size->size()) {
    throw UserError("{}: the hub tells the size \"{}\" of {}", repo, *size, file.path);
  }
  set_etag(file, repo);
}

}  // namespace quince
