#include "engine/sampling/penalties.h"

namespace quince {

Penalties::Penalties(const SamplingParams& params)
    : repetition_(params.repetition_penalty),
      presence_(params.presence_penalty),
      frequency_(params.frequency_penalty),
      window_(repetition_ == 1.0f ? 0 : params.repeat_last_n) {}

void Penalties::observe(std::span<const int32_t> prompt) {
  if (window_ >= 0 && prompt.size() > static_cast<size_t>(window_)) {
    prompt = prompt.last(static_cast<size_t>(window_));
  }
  for (const int32_t token : prompt) {
    look_back_at(token);
  }
}

void Penalties::look_back_at(int32_t token) {
  if (window_ == 0) {
    return;
  }
  ++in_window_[token];
  if (window_ < 0) {
    return;
  }
  recent_.push_back(token);
  if (recent_.size() > static_cast<size_t>(window_)) {
    const auto oldest = in_window_.find(recent_.front());
    if (--oldest->second == 0) {
      in_window_.erase(oldest);
    }
    recent_.pop_front();
  }
}

void Penalties::accept(int32_t generated) {
  look_back_at(generated);
  if (presence_ != 0.0f || frequency_ != 0.0f) {
    ++generated_[generated];
  }
}

void Penalties::apply(Candidates& candidates) const {
  if (in_window_.empty() && generated_.empty()) {
    return;
  }
  const auto repeated = [&](float& x) { x = x > 0 ? x / repetition_ : x * repetition_; };
  const auto present = [&](float& x, int times) {
    x -= presence_ + frequency_ * static_cast<float>(times);
  };
  if (candidates.whole()) {
    const std::span<float> row = candidates.changed_row();
    const auto known = [&](int32_t token) {
      return token >= 0 && static_cast<size_t>(token) < row.size();
    };
    for (const auto& [token, times] : in_window_) {
      if (known(token)) {
        repeated(row[token]);
      }
    }
    for (const auto& [token, times] : generated_) {
      if (known(token)) {
        present(row[token], times);
      }
    }
    return;
  }
  for (Candidate& c : candidates.list()) {
    if (in_window_.contains(c.id)) {
      repeated(c.logit);
    }
    if (const auto found = generated_.find(c.id); found != generated_.end()) {
      present(c.logit, found->second);
    }
  }
  candidates.disturbed();
}

}  // namespace quince
