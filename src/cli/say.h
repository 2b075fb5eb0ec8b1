// What is told on standard error, beside the output. Whoever listened there may have ended, as the
// other end of a pipe does: that is no reason to end as well. Any thread.
#pragma once

#include <cstdio>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace quince::cli {

template <typename... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  static_cast<void>(std::fwrite(text.data(), 1, text.size(), stderr));  // at once: not buffered
}

}  // namespace quince::cli
