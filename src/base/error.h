// What goes wrong, in two kinds. A UserError is something the caller can mend: its message names
// the thing, the value and the remedy, and becomes exit status 2 or HTTP 400. Any other exception
// is ours: exit status 1 or HTTP 500. The library neither prints nor aborts.
#pragma once

#include <stdexcept>
#include <string>

#include <fmt/format.h>

namespace quince {

class UserError : public std::runtime_error {
 public:
  explicit UserError(const std::string& message) : std::runtime_error(message) {}

  // UserError("{}: has {} rows, want {}", ...)
  template <typename First, typename... Rest>
  UserError(fmt::format_string<First, Rest...> format, First&& first, Rest&&... rest)
      : std::runtime_error(
            fmt::format(format, std::forward<First>(first), std::forward<Rest>(rest)...)) {}
};

}  // namespace quince
