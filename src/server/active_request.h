// What runs, by id: for cancelling it from another connection, and for telling what runs. Any
// thread.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/token_stream.h"

namespace quince::server {

struct ActiveRequest {
  std::string id;
  std::string route;
  std::vector<TokenStream> streams;  // not changed once the request is registered
  std::vector<int> slots;            // of each
  int prompt_tokens = 0;
  std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
};

class ActiveRequests {
 public:
  void add(const std::shared_ptr<ActiveRequest>& request);
  void remove(const ActiveRequest& request);
  bool cancel(const std::string& id);  // false: there is none of that id
  void cancel_all();
  std::vector<std::shared_ptr<ActiveRequest>> list() const;  // by the time they came

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::weak_ptr<ActiveRequest>> requests_;
};

}  // namespace quince::server
