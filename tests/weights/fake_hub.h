// A hub of one repository on a local port, with faults to order. Threads: one accepts, one a
// connection.
#pragma once

#include <atomic>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <openssl/evp.h>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/json.hpp>

namespace quince::test {

inline std::string digest_hex(const EVP_MD* type, const std::string& bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest, &size, type, nullptr);
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) {
    char two[3];
    std::snprintf(two, sizeof(two), "%02x", digest[i]);
    hex += two;
  }
  return hex;
}

struct SeenRequest {
  std::string method;
  std::string target;
  std::string authorization;
  std::string range;
};

class FakeHub {
 public:
  struct File {
    std::string content;
    bool lfs = false;
  };

  // Set before the first request.
  std::string repo = "org/name";
  std::string commit = "0123456789abcdef0123456789abcdef01234567";
  std::map<std::string, File> files;
  bool tells_blobs = true;          // sizes and hashes in the listing
  bool ranges = true;               // false: answers 200 with everything
  std::string needs_token;          // 401 without it
  std::string store;                // origin of a second server that LFS files are redirected to
  std::string error_code;           // x-error-code of refusals
  int refusal = 0;                  // this status for everything
  std::string wrong_sha256;         // told instead of the right one
  std::string retry_after;          // header of 503 answers
  size_t no_range_from = SIZE_MAX;  // 416 for ranges that begin there or later
  std::string page;                 // 200 and this instead of every file
  std::atomic<size_t> bytes_per_second{0};  // of each connection; 0: as fast as it goes
  std::atomic<bool> silent{false};          // takes requests and answers none
  std::atomic<int> failures{0};             // that many 503 answers first, not to the listing
  std::atomic<int> resets{0};               // that many bodies end with a reset in the middle
  std::atomic<int> shorts{0};  // that many bodies end in the middle, with an orderly close
  std::atomic<int> listing_failures{0};         // 503 answers
  std::atomic<int> head_failures{0};            // 503 answers
  const FakeHub* keys = nullptr;                // the store, when its addresses run out
  std::atomic<int> key{0};                      // of the store's good addresses
  std::atomic<int> requests_of_a_key{1 << 30};  // then the store's key changes
  std::atomic<int> stale_store{0};              // that many 403 answers of the store first

  FakeHub() : acceptor_(context_, {boost::asio::ip::make_address("127.0.0.1"), 0}) {
    acceptor_thread_ = std::thread([this] { accept(); });
  }
  ~FakeHub() {
    stopping_ = true;
    {
      // Wakes accept().
      boost::system::error_code ec;
      Socket socket(context_);
      (void)socket.connect(acceptor_.local_endpoint(), ec);
    }
    acceptor_thread_.join();
    std::lock_guard lock(mutex_);
    for (Connection& connection : connections_) {
      ::shutdown(connection.socket.native_handle(), SHUT_RDWR);
    }
    for (Connection& connection : connections_) {
      connection.thread.join();
    }
  }

  std::string origin() const {
    return "http://127.0.0.1:" + std::to_string(acceptor_.local_endpoint().port());
  }
  std::vector<SeenRequest> seen() const {
    std::lock_guard lock(mutex_);
    return seen_;
  }
  void forget() {
    std::lock_guard lock(mutex_);
    seen_.clear();
  }
  // Requests for file contents.
  int count(const std::string& method, const std::string& part) const {
    int n = 0;
    for (const SeenRequest& request : seen()) {
      n += request.method == method && request.target.find(part) != std::string::npos;
    }
    return n;
  }

  static std::string sha256(const std::string& bytes) {
    return digest_hex(EVP_sha256(), bytes);
  }
  static std::string git_sha1(const std::string& bytes) {
    return digest_hex(EVP_sha1(), "blob " + std::to_string(bytes.size()) + '\0' + bytes);
  }
  std::string etag(const std::string& path) const {
    const File& file = files.at(path);
    if (!file.lfs) {
      return git_sha1(file.content);
    }
    return wrong_sha256.empty() ? sha256(file.content) : wrong_sha256;
  }

 private:
  using Socket = boost::asio::ip::tcp::socket;
  using Request = boost::beast::http::request<boost::beast::http::empty_body>;
  using Response = boost::beast::http::response<boost::beast::http::string_body>;
  struct Connection {
    Socket socket;
    std::thread thread;
  };
  enum class Ending { whole, reset, cut };

  void accept() {
    while (!stopping_) {
      boost::system::error_code ec;
      Socket socket(context_);
      (void)acceptor_.accept(socket, ec);
      if (ec || stopping_) {
        continue;
      }
      std::lock_guard lock(mutex_);
      connections_.push_back({std::move(socket), {}});
      Connection& connection = connections_.back();
      connection.thread = std::thread([this, &connection] { serve(connection.socket); });
    }
  }

  void serve(Socket& socket) {
    namespace http = boost::beast::http;
    boost::beast::flat_buffer buffer;
    boost::system::error_code ec;
    while (!stopping_) {
      Request request;
      http::read(socket, buffer, request, ec);
      if (ec) {
        return;
      }
      {
        std::lock_guard lock(mutex_);
        seen_.push_back(
            {std::string(request.method_string()),
             std::string(request.target()),
             std::string(request[http::field::authorization]),
             std::string(request[http::field::range])});
      }
      while (silent && !stopping_) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      Response response = answer(request);
      response.keep_alive(request.keep_alive());
      response.content_length(response.body().size());
      const bool head = request.method() == http::verb::head;
      Ending ending = Ending::whole;
      if (!head && response.result_int() / 100 == 2 && !is_listing(request)) {
        ending = resets-- > 0 ? Ending::reset : (shorts-- > 0 ? Ending::cut : Ending::whole);
      }
      if (!send(socket, response, head, ending)) {
        return;
      }
    }
  }

  bool send(Socket& socket, Response& response, bool head, Ending ending) {
    namespace http = boost::beast::http;
    boost::system::error_code ec;
    http::response_serializer<http::string_body> serializer(response);
    if (head) {
      serializer.split(true);
      http::write_header(socket, serializer, ec);
      return !ec;
    }
    if (ending == Ending::whole) {
      if (bytes_per_second == 0) {
        http::write(socket, serializer, ec);
        return !ec;
      }
      return send_slowly(socket, response, serializer);
    }
    serializer.split(true);
    http::write_header(socket, serializer, ec);
    const std::string half = response.body().substr(0, response.body().size() / 2);
    boost::asio::write(socket, boost::asio::buffer(half), ec);
    if (ending == Ending::reset) {
      // Let the half arrive, or the reset would take it along.
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      (void)socket.set_option(boost::asio::socket_base::linger(true, 0), ec);
    }
    (void)socket.close(ec);
    return false;
  }

  bool send_slowly(
      Socket& socket,
      const Response& response,
      boost::beast::http::response_serializer<boost::beast::http::string_body>& serializer) {
    constexpr size_t kPiece = 16'384;
    boost::system::error_code ec;
    serializer.split(true);
    boost::beast::http::write_header(socket, serializer, ec);
    const std::string& body = response.body();
    for (size_t at = 0; at < body.size() && !ec && !stopping_; at += kPiece) {
      const size_t size = std::min(kPiece, body.size() - at);
      boost::asio::write(socket, boost::asio::buffer(body.data() + at, size), ec);
      std::this_thread::sleep_for(
          std::chrono::duration<double>(static_cast<double>(size) / bytes_per_second));
    }
    return !ec && !stopping_;
  }

  static bool is_listing(const Request& request) {
    return request.target().starts_with("/api/");
  }

  Response answer(const Request& request) {
    namespace http = boost::beast::http;
    const std::string target(request.target());
    if (refusal) {
      return plain(refusal);
    }
    if (!needs_token.empty() && request[http::field::authorization] != "Bearer " + needs_token) {
      return plain(401);
    }
    if (is_listing(request)) {
      return listing_failures-- > 0 ? plain(503) : listing(target);
    }
    const std::string prefix = "/" + repo + "/resolve/" + commit + "/";
    const std::string stored = "/store/";
    if (target.starts_with(prefix)) {
      return content(request, target.substr(prefix.size()), true);
    }
    if (target.starts_with(stored)) {
      if (requests_of_a_key-- == 0) {
        ++key;
      }
      const size_t question = target.find('?');
      if (question != std::string::npos) {
        const bool good = target.substr(question + 1) == std::to_string(key);
        return good
                   ? content(request, target.substr(stored.size(), question - stored.size()), false)
                   : plain(403);
      }
      return stale_store-- > 0 ? plain(403) : content(request, target.substr(stored.size()), false);
    }
    return plain(404);
  }

  Response plain(int status) const {
    Response response;
    response.result(static_cast<unsigned>(status));
    response.body() = "refused";
    if (!error_code.empty()) {
      response.set("X-Error-Code", error_code);
    }
    if (status == 503 && !retry_after.empty()) {
      response.set("Retry-After", retry_after);
    }
    return response;
  }

  Response listing(const std::string& target) const {
    if (!target.starts_with("/api/models/" + repo + "/revision/")) {
      return plain(404);
    }
    boost::json::array siblings;
    for (const auto& [path, file] : files) {
      boost::json::object entry{{"rfilename", path}};
      if (tells_blobs) {
        entry["size"] = file.content.size();
        entry["blobId"] = git_sha1(file.lfs ? "pointer to " + path : file.content);
        if (file.lfs) {
          entry["lfs"] = boost::json::object{{"sha256", etag(path)}, {"size", file.content.size()}};
        }
      }
      siblings.push_back(std::move(entry));
    }
    Response response;
    response.body() = boost::json::serialize(
        boost::json::object{{"sha", commit}, {"siblings", std::move(siblings)}});
    return response;
  }

  Response content(const Request& request, const std::string& path, bool from_hub) {
    namespace http = boost::beast::http;
    if (files.count(path) == 0) {
      return plain(404);
    }
    const File& file = files.at(path);
    const bool head = request.method() == http::verb::head;
    if (head && head_failures-- > 0) {
      return plain(503);
    }
    Response response;
    if (from_hub) {
      response.set("X-Repo-Commit", commit);
      response.set("ETag", "\"" + etag(path) + "\"");
      if (file.lfs) {
        response.set("X-Linked-Etag", "\"" + etag(path) + "\"");
        response.set("X-Linked-Size", std::to_string(file.content.size()));
      }
      if (file.lfs && !store.empty()) {
        response.result(302);
        response.set(
            http::field::location,
            store + "/store/" + path + (keys ? "?" + std::to_string(keys->key) : ""));
        return response;
      }
    }
    if (!head && failures-- > 0) {
      return plain(503);
    }
    if (!page.empty() && !head) {
      response.body() = page;
      return response;
    }
    const std::string range(request[http::field::range]);
    size_t first = 0;
    size_t last = 0;
    if (ranges && std::sscanf(range.c_str(), "bytes=%zu-%zu", &first, &last) == 2) {
      if (first >= std::min(file.content.size(), no_range_from)) {
        return plain(416);
      }
      last = std::min(last, file.content.size() - 1);
      response.result(206);
      response.set(
          http::field::content_range,
          "bytes " + std::to_string(first) + "-" + std::to_string(last) + "/" +
              std::to_string(file.content.size()));
      response.body() = file.content.substr(first, last - first + 1);
      return response;
    }
    response.body() = file.content;
    return response;
  }

  boost::asio::io_context context_;
  boost::asio::ip::tcp::acceptor acceptor_;
  std::atomic<bool> stopping_{false};
  mutable std::mutex mutex_;  // seen_, connections_
  std::vector<SeenRequest> seen_;
  std::list<Connection> connections_;
  std::thread acceptor_thread_;
};

}  // namespace quince::test
