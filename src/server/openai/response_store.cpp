#include "server/openai/response_store.h"

#include <algorithm>
#include <utility>

namespace quince::server {

void ResponseStore::put(StoredResponse response) {
  const std::scoped_lock lock(mutex_);
  bytes_ += response.bytes;
  responses_.push_front(std::move(response));
  while (bytes_ > most_bytes_ && responses_.size() > 1) {
    bytes_ -= responses_.back().bytes;
    responses_.pop_back();
  }
}

std::optional<StoredResponse> ResponseStore::get(const std::string& id) const {
  const std::scoped_lock lock(mutex_);
  const auto found = std::find_if(
      responses_.begin(), responses_.end(), [&](const auto& row) { return row.id == id; });
  return found == responses_.end() ? std::nullopt : std::optional(*found);
}

bool ResponseStore::remove(const std::string& id) {
  const std::scoped_lock lock(mutex_);
  const auto found = std::find_if(
      responses_.begin(), responses_.end(), [&](const auto& row) { return row.id == id; });
  if (found == responses_.end()) {
    return false;
  }
  bytes_ -= found->bytes;
  responses_.erase(found);
  return true;
}

}  // namespace quince::server
