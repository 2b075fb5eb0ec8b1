// What is done as the memory for keys and values runs out, in this order:
//   evict     from the alarm on, what nobody holds is given up, to the disk if there is one, so
//   that
//             it never lifts the whole above the alarm (PageTableOptions::alarm)
//   preempt   at the limit, the last sequence in order gives its pages up and goes on later from
//             what is still there, in memory or on the disk
//   refuse    a sequence that would not fit alone is refused, with the numbers
// Two rungs that others have between these are not climbed by themselves, for they change answers.
// Quantize: pages are shared while kernels read them, and an answer that depends on what its
// neighbours need is not the answer of its own request; --kv-bits codes every page from the start,
// at a loss that is known. Rotate: to forget the middle of a text is for the user to decide, with
// --max-kv-size, before it begins. The line of the preempt rung names both.
// Pure policy: numbers in, a line or nothing out. No MLX. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quince {

enum class Rung : uint8_t { none, evict, preempt, refuse };
std::string_view name(Rung rung);

struct MemoryUse {
  int64_t held = 0;         // pages
  int64_t kept = 0;         // that nobody holds
  int64_t preemptions = 0;  // since the start
  int64_t refusals = 0;
};

class MemoryLadder {
 public:
  MemoryLadder(int64_t limit, size_t page_bytes) : limit_(limit), page_bytes_(page_bytes) {}
  static int64_t alarm(int64_t limit) {  // pages
    return limit * 7 / 10;
  }
  static int64_t calm(int64_t limit) {  // below this the alarm is over
    return limit * 6 / 10;
  }

  // Where use stands, after every step. Returns a line when a rung is reached that was not since
  // the last calm.
  std::optional<std::string> look(const MemoryUse& use);
  Rung rung() const {
    return rung_;
  }
  int64_t alarms() const {  // calm that ended
    return alarms_;
  }

 private:
  std::string line(const MemoryUse& use) const;
  int64_t limit_;  // pages
  size_t page_bytes_;
  Rung rung_ = Rung::none;
  MemoryUse last_;
  int64_t alarms_ = 0;
};

}  // namespace quince
