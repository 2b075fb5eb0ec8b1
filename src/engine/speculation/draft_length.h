// How many drafted tokens are worth a step's time: enough that the step gives more tokens a second
// than one without them, by what steps have cost and drafts have been right so far. Pure policy:
// numbers in, numbers out.
//
// A token that follows right ones is right with probability p, so k drafted tokens give
// p (1 - p^k) / (1 - p) beside the one that is sampled anyway (Leviathan, Kalman and Matias 2023,
// "Fast inference from transformers via speculative decoding", equation 1). A step of n rows takes
// a + c n seconds.
#pragma once

#include <cstdint>

namespace quince {

// What steps cost: a line through those of late, the older ones counting less.
class StepCost {
 public:
  void took(int rows, double seconds);
  double seconds(double rows) const;  // 0: nothing is known
  double per_row() const;

 private:
  double weight_ = 0;
  double rows_ = 0;  // weighted sums
  double seconds_ = 0;
  double rows_squared_ = 0;
  double rows_seconds_ = 0;
};

// How often drafts of one kind have been right, in one sequence.
class DraftRecord {
 public:
  explicit DraftRecord(double expected = 0.5) : expected_(expected) {}
  void judged(int drafted, int right);
  double probability() const;
  // Counts what might have been drafted and was not; true now and then: it may have become better.
  bool try_again();

 private:
  double expected_;
  double right_ = 0;  // tokens; old ones count less
  double wrong_ = 0;
  int passed_ = 0;
};

// At most `most` tokens for one of `decoding` sequences that have a row each; 0: none. extra: what
// drafting a token costs by itself, seconds.
int best_draft_length(
    double probability, const StepCost& cost, int decoding, int most, double extra = 0);

}  // namespace quince
