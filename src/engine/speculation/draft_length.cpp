#include "engine/speculation/draft_length.h"

#include <algorithm>
#include <cmath>

namespace quince {

namespace {

constexpr double kStepMemory = 0.98;   // what a step before counts
constexpr double kDraftMemory = 0.9;   // what a draft before counts
constexpr double kPrior = 4;           // drafted tokens' worth of expectation
constexpr double kFirstPerRow = 0.15;  // of a step of one row, until steps of others were seen
constexpr double kGain = 1.03;         // a smaller one is not worth the trouble
constexpr int kPassed = 32;            // opportunities, until one is taken again

}  // namespace

void StepCost::took(int rows, double seconds) {
  const auto n = static_cast<double>(rows);
  weight_ = weight_ * kStepMemory + 1;
  rows_ = rows_ * kStepMemory + n;
  seconds_ = seconds_ * kStepMemory + seconds;
  rows_squared_ = rows_squared_ * kStepMemory + n * n;
  rows_seconds_ = rows_seconds_ * kStepMemory + n * seconds;
}

double StepCost::per_row() const {
  if (weight_ == 0) {
    return 0;
  }
  const double rows = rows_ / weight_;
  const double seconds = seconds_ / weight_;
  const double spread = rows_squared_ / weight_ - rows * rows;
  const double first = kFirstPerRow * seconds / (1 + kFirstPerRow * (rows - 1));
  if (spread < 0.05) {  // all about the same
    return first;
  }
  const double slope = (rows_seconds_ / weight_ - rows * seconds) / spread;
  // A row costs something, and no more than its share of the step.
  return std::clamp(slope, 0.01 * seconds / rows, seconds / rows);
}

double StepCost::seconds(double rows) const {
  return weight_ == 0 ? 0 : seconds_ / weight_ + per_row() * (rows - rows_ / weight_);
}

void DraftRecord::judged(int drafted, int right) {
  right_ = right_ * kDraftMemory + right;
  wrong_ = wrong_ * kDraftMemory + (right < drafted ? 1 : 0);
  passed_ = 0;
}

double DraftRecord::probability() const {
  return (right_ + kPrior * expected_) / (right_ + wrong_ + kPrior);
}

bool DraftRecord::try_again() {
  passed_ = (passed_ + 1) % kPassed;
  return passed_ == 0;
}

int best_draft_length(
    double probability, const StepCost& cost, int decoding, int most, double extra) {
  const double plain = cost.seconds(decoding);
  if (plain <= 0) {
    return 0;
  }
  int best = 0;
  double best_rate = kGain * decoding / plain;
  double gain = 0;
  double power = 1;
  for (int k = 1; k <= most; ++k) {
    power *= probability;
    gain += power;
    const double rate = (decoding + gain) / (plain + k * (cost.per_row() + extra));
    if (rate > best_rate) {
      best = k;
      best_rate = rate;
    }
  }
  return best;
}

}  // namespace quince
