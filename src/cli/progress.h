// A progress bar on standard error: only on a terminal, and only once the work has taken longer
// than a second. update() may be called from any one thread at a time.
#pragma once

#include <chrono>
#include <string>

namespace quince::cli {

class ProgressBar {
 public:
  explicit ProgressBar(std::string label, bool quiet = false);
  ~ProgressBar();  // clears the line
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(double fraction, const std::string& detail = "");
  void clear();
  // The line as it would be drawn: apart for tests. width: columns it may fill.
  static std::string line(
      const std::string& label,
      double fraction,
      double seconds,
      const std::string& detail,
      int width);

 private:
  using Clock = std::chrono::steady_clock;
  std::string label_;
  bool enabled_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = start_;
};

}  // namespace quince::cli
