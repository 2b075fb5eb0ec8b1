#include "cli/progress.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <fmt/format.h>

#include "cli/say.h"
#include "cli/terminal.h"

namespace quince::cli {

namespace {

constexpr std::chrono::milliseconds kPatience{1000};  // quick work shows nothing
constexpr std::chrono::milliseconds kInterval{100};

}  // namespace

ProgressBar::ProgressBar(std::string label, bool quiet)
    : label_(std::move(label)), enabled_(!quiet && stderr_is_terminal()) {}

ProgressBar::~ProgressBar() {
  clear();
}

void ProgressBar::clear() {
  if (drawn_) {
    say("\r\x1b[K");
    std::fflush(stderr);
    drawn_ = false;
  }
}

void ProgressBar::update(double fraction, const std::string& detail) {
  if (!enabled_) {
    return;
  }
  auto now = Clock::now();
  if (now - start_ < kPatience || (drawn_ && now - last_ < kInterval)) {
    return;
  }
  last_ = now;
  drawn_ = true;
  double seconds = std::chrono::duration<double>(now - start_).count();
  say("\r{}\x1b[K", line(label_, fraction, seconds, detail, terminal_width() - 1));
  std::fflush(stderr);
}

std::string ProgressBar::line(
    const std::string& label,
    double fraction,
    double seconds,
    const std::string& detail,
    int width) {
  if (!std::isfinite(fraction)) {
    fraction = 0;
  }
  fraction = std::clamp(fraction, 0.0, 1.0);
  std::string tail = fmt::format(" {:3.0f}%", fraction * 100);
  if (fraction > 0.02 && fraction < 1) {
    double left = seconds / fraction * (1 - fraction);
    tail += fmt::format("  {:.0f} s left", std::ceil(left));
  }
  if (!detail.empty()) {
    tail += "  " + detail;
  }
  int room = std::min(width - static_cast<int>(label.size() + tail.size()) - 3, 40);
  if (room < 8) {
    std::string text = label + tail;
    return text.substr(0, static_cast<size_t>(std::max(width, 0)));
  }
  int filled = static_cast<int>(std::lround(fraction * room));
  return fmt::format(
      "{} [{}{}]{}",
      label,
      std::string(static_cast<size_t>(filled), '='),
      std::string(static_cast<size_t>(room - filled), ' '),
      tail);
}

}  // namespace quince::cli
