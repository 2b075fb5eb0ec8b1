#include "server/active_request.h"

#include <algorithm>

namespace quince::server {

void ActiveRequests::add(const std::shared_ptr<ActiveRequest>& request) {
  const std::scoped_lock lock(mutex_);
  requests_[request->id] = request;
}

void ActiveRequests::remove(const ActiveRequest& request) {
  const std::scoped_lock lock(mutex_);
  requests_.erase(request.id);
}

bool ActiveRequests::cancel(const std::string& id) {
  std::shared_ptr<ActiveRequest> request;
  {
    const std::scoped_lock lock(mutex_);
    const auto found = requests_.find(id);
    request = found == requests_.end() ? nullptr : found->second.lock();
  }
  if (!request) {
    return false;
  }
  for (TokenStream& stream : request->streams) {
    stream.cancel();
  }
  return true;
}

void ActiveRequests::cancel_all() {
  for (const auto& request : list()) {
    cancel(request->id);
  }
}

std::vector<std::shared_ptr<ActiveRequest>> ActiveRequests::list() const {
  std::vector<std::shared_ptr<ActiveRequest>> out;
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& [id, weak] : requests_) {
      if (auto request = weak.lock()) {
        out.push_back(std::move(request));
      }
    }
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) {
    return a->started != b->started ? a->started < b->started : a->id < b->id;
  });
  return out;
}

}  // namespace quince::server
