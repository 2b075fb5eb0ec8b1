// Responses that clients may come back to: what was said so far, and the response itself. The
// oldest ones go when there are too many. Any thread.
#pragma once

#include <list>
#include <mutex>
#include <optional>
#include <string>

#include <boost/json.hpp>

namespace quince::server {

struct StoredResponse {
  std::string id;
  std::string body;             // as it was answered
  boost::json::array messages;  // the conversation up to and with it
  size_t bytes = 0;             // of both, about
};

class ResponseStore {
 public:
  explicit ResponseStore(size_t most_bytes = size_t{64} << 20) : most_bytes_(most_bytes) {}

  void put(StoredResponse response);
  std::optional<StoredResponse> get(const std::string& id) const;
  bool remove(const std::string& id);

 private:
  size_t most_bytes_;
  mutable std::mutex mutex_;
  std::list<StoredResponse> responses_;  // the newest first
  size_t bytes_ = 0;
};

}  // namespace quince::server
