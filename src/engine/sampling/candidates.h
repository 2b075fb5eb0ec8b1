// The tokens that a step may still choose. At first the whole row of logits, as it was given; a
// copy of it once a step changes logits; a list once a step takes tokens away. No MLX.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace quince {

struct Candidate {
  float logit;
  int32_t id;
};

// Higher logits first, of equal ones the lower id.
inline bool better(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

constexpr float kNever = -std::numeric_limits<float>::infinity();  // logit of an excluded token

class Candidates {
 public:
  void start(std::span<const float> row);  // not copied: must live as long as it is used

  // While no step has taken a token away.
  bool whole() const {
    return whole_;
  }
  std::span<const float> row() const {
    return row_;
  }
  std::span<float> changed_row();  // a copy from the first call on

  // Makes a list of what is left: every token above -infinity, NaN left out.
  std::vector<Candidate>& list();
  // Calls that change logits in the list, or its order, say so: nothing is sorted any more.
  void disturbed() {
    sorted_ = 0;
  }

  size_t size();    // of the list
  float highest();  // -infinity when nothing is left

  // The n best come first in the list, best first; less when there are not so many.
  std::span<Candidate> best(size_t n);
  void keep_best(size_t n);                       // and no other
  void drop_front(size_t n);                      // after best(m), m >= n
  void keep_above(float logit, size_t at_least);  // those from logit up; never fewer than at_least

 private:
  std::span<const float> row_;
  std::vector<float> copy_;
  bool copied_ = false;
  bool whole_ = true;
  std::vector<Candidate> list_;
  size_t sorted_ = 0;  // so many of the list are the best ones, in order
};

// The highest of n numbers; NaN counts as nothing.
float block_max(const float* x, size_t n);

// log(sum(exp)) in f64 sums.
float log_sum_exp(std::span<const float> logits);

// The first of the highest. The row must have a number.
int32_t arg_max(std::span<const float> logits, float highest);

// The n best of a row, in any order, NaN and -infinity left out.
void collect_best(std::span<const float> row, size_t n, std::vector<Candidate>& out);

// Those from bound up, by id. bound is above -infinity.
void collect_above(std::span<const float> row, float bound, std::vector<Candidate>& out);

}  // namespace quince
