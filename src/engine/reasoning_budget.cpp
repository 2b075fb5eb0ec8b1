#include "engine/reasoning_budget.h"

#include <algorithm>
#include <string_view>

namespace quince {

void ReasoningWatch::take(int32_t token) {
  if (state_ == State::over) {
    return;
  }
  tail_ += budget_.text_of(token);
  if (state_ == State::before) {
    const std::string_view text =
        std::string_view(tail_).substr(std::min(tail_.find_first_not_of(" \n\r\t"), tail_.size()));
    if (text.starts_with(budget_.begin)) {
      state_ = State::inside;
      tail_.clear();
    } else if (!std::string_view(budget_.begin).starts_with(text)) {
      state_ = State::over;
    }
    return;
  }
  ++count_;
  if (tail_.find(budget_.end) != std::string::npos) {
    state_ = State::over;
    return;
  }
  tail_.erase(0, tail_.size() - std::min(tail_.size(), budget_.end.size()));
}

}  // namespace quince
