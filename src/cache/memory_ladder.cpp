#include "cache/memory_ladder.h"

#include <algorithm>

#include <fmt/format.h>

namespace quince {

std::string_view name(Rung rung) {
  switch (rung) {
    case Rung::none:
      return "none";
    case Rung::evict:
      return "evict";
    case Rung::preempt:
      return "preempt";
    case Rung::refuse:
      return "refuse";
  }
  return "";
}

std::string MemoryLadder::line(const MemoryUse& use) const {
  const double mega = static_cast<double>(page_bytes_) / 1e6;
  std::string where = fmt::format(
      "keys and values take {:.1f} of {:.1f} MB",
      static_cast<double>(use.held + use.kept) * mega,
      static_cast<double>(limit_) * mega);
  switch (rung_) {
    case Rung::none:
      break;
    case Rung::evict:
      return where + ": what was used longest ago is given up";
    case Rung::preempt:
      return where +
             ": sequences have to wait for each other (--kv-bits 8 halves what each takes, "
             "--max-kv-size bounds it)";
    case Rung::refuse:
      return where + ": a sequence that does not fit alone was refused";
  }
  return where;
}

std::optional<std::string> MemoryLadder::look(const MemoryUse& use) {
  const int64_t all = use.held + use.kept;
  Rung reached = all >= alarm(limit_) ? Rung::evict : Rung::none;
  if (use.preemptions > last_.preemptions) {
    reached = Rung::preempt;
  }
  if (use.refusals > last_.refusals) {
    reached = Rung::refuse;
  }
  last_ = use;
  if (reached > rung_) {
    alarms_ += rung_ == Rung::none ? 1 : 0;
    rung_ = reached;
    return line(use);
  }
  if (reached == Rung::none && all < calm(limit_)) {
    rung_ = Rung::none;
  }
  return std::nullopt;
}

}  // namespace quince
