#include "server/slots.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace quince::server {

int Slots::enter(std::optional<int> wanted) {
  const std::scoped_lock lock(mutex_);
  const auto place =
      wanted ? slots_.begin() + *wanted
             : std::min_element(slots_.begin(), slots_.end(), [](const Slot& a, const Slot& b) {
                 return std::tuple(a.waiting > 0, a.running) < std::tuple(b.waiting > 0, b.running);
               });
  ++place->running;
  return static_cast<int>(place - slots_.begin());
}

void Slots::leave(int slot, std::optional<std::vector<Token>> tokens) {
  std::function<void()> notify;
  {
    const std::scoped_lock lock(mutex_);
    Slot& place = slots_[static_cast<size_t>(slot)];
    if (tokens) {
      place.tokens = *std::move(tokens);
    }
    if (--place.running == 0) {
      notify = notify_;
    }
  }
  if (notify) {
    notify();
  }
}

bool Slots::is_free(int slot) const {
  const std::scoped_lock lock(mutex_);
  return slots_[static_cast<size_t>(slot)].running == 0;
}

void Slots::wait_for(int slot, bool waits) {
  const std::scoped_lock lock(mutex_);
  slots_[static_cast<size_t>(slot)].waiting += waits ? 1 : -1;
}

void Slots::on_free(std::function<void()> notify) {
  const std::scoped_lock lock(mutex_);
  notify_ = std::move(notify);
}

std::vector<Token> Slots::tokens(int slot) const {
  const std::scoped_lock lock(mutex_);
  return slots_[static_cast<size_t>(slot)].tokens;
}

size_t Slots::token_count(int slot) const {
  const std::scoped_lock lock(mutex_);
  return slots_[static_cast<size_t>(slot)].tokens.size();
}

void Slots::set_tokens(int slot, std::vector<Token> tokens) {
  const std::scoped_lock lock(mutex_);
  slots_[static_cast<size_t>(slot)].tokens = std::move(tokens);
}

int64_t Slots::shared_tokens(int slot) const {
  const std::scoped_lock lock(mutex_);
  const std::vector<Token>& its = slots_[static_cast<size_t>(slot)].tokens;
  int64_t most = 0;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (static_cast<int>(i) != slot) {
      const std::vector<Token>& other = slots_[i].tokens;
      const auto end = std::mismatch(its.begin(), its.end(), other.begin(), other.end()).first;
      most = std::max<int64_t>(most, end - its.begin());
    }
  }
  return most;
}

SlotUse::SlotUse(std::shared_ptr<Slots> slots, std::optional<int> wanted, std::vector<Token> prompt)
    : slots_(std::move(slots)), tokens_(std::move(prompt)), slot_(slots_->enter(wanted)) {}

SlotUse::~SlotUse() {
  if (slots_) {
    slots_->leave(slot_, begun_ ? std::optional(std::move(tokens_)) : std::nullopt);
  }
}

void SlotUse::add(std::span<const Token> tokens) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

}  // namespace quince::server
