// What stands here for llama-server's slots. Keys and values are shared by all and found by what a
// prompt begins with, so a slot holds none: it is the number of a place that an answer runs in, and
// remembers the tokens, prompt and answer, of the last one that ran there. These can be saved,
// brought back and forgotten. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace quince::server {

class Slots {
 public:
  explicit Slots(int count) : slots_(static_cast<size_t>(count)) {}

  int count() const {
    return static_cast<int>(slots_.size());
  }
  // A place for an answer: the wanted one, whoever runs there, or the first that is free, or the
  // one with the fewest in it. Those that somebody waits for come last.
  int enter(std::optional<int> wanted);
  // tokens: what the slot remembers from now on; absent: what it did.
  void leave(int slot, std::optional<std::vector<Token>> tokens);

  bool is_free(int slot) const;
  void wait_for(int slot, bool waits);  // somebody waits until it is free, or does no more
  // Called, on any thread and with no lock held, whenever a slot becomes free. Set before use.
  void on_free(std::function<void()> notify);

  std::vector<Token> tokens(int slot) const;
  size_t token_count(int slot) const;
  void set_tokens(int slot, std::vector<Token> tokens);
  // How many of its first tokens another slot begins with too.
  int64_t shared_tokens(int slot) const;

 private:
  struct Slot {
    int running = 0;
    int waiting = 0;
    std::vector<Token> tokens;
  };

  mutable std::mutex mutex_;
  std::vector<Slot> slots_;
  std::function<void()> notify_;
};

// An answer's stay in a slot.
class SlotUse {
 public:
  SlotUse(std::shared_ptr<Slots> slots, std::optional<int> wanted, std::vector<Token> prompt);
  ~SlotUse();
  SlotUse(SlotUse&& other) noexcept = default;
  SlotUse(const SlotUse&) = delete;
  SlotUse& operator=(const SlotUse&) = delete;
  SlotUse& operator=(SlotUse&&) = delete;

  int slot() const {
    return slot_;
  }
  void add(std::span<const Token> tokens);
  void begun() {  // work on it: it is what the slot remembers
    begun_ = true;
  }

 private:
  std::shared_ptr<Slots> slots_;
  std::vector<Token> tokens_;
  int slot_;
  bool begun_ = false;
};

}  // namespace quince::server
