#include <algorithm>
#include <utility>

#include "tokenizer/tokenizer.h"

namespace quince {

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

std::string StopMatcher::add(std::string_view piece) {
  if (stopped_) {
    return "";
  }
  held_ += piece;
  size_t begin = 0;
  size_t end = std::string::npos;
  const std::string* found = nullptr;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at == std::string::npos) {
      continue;
    }
    if (!found || at + stop.size() < end || (at + stop.size() == end && at < begin)) {
      found = &stop;
      begin = at;
      end = at + stop.size();
    }
  }
  if (found) {
    stopped_ = *found;
    std::string out = held_.substr(0, begin);
    held_.clear();
    return out;
  }
  size_t hold = 0;
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > hold; --n) {
      if (std::string_view(held_).substr(held_.size() - n) == std::string_view(stop).substr(0, n)) {
        hold = n;
      }
    }
  }
  std::string out = held_.substr(0, held_.size() - hold);
  held_.erase(0, out.size());
  return out;
}

std::string StopMatcher::finish() {
  return stopped_ ? std::string() : std::exchange(held_, {});
}

}  // namespace quince
