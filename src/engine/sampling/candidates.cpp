#include "engine/sampling/candidates.h"

#include <algorithm>
#include <cmath>

namespace quince {

namespace {

// Blocks this long are first reduced to their maximum, which compilers vectorize; only a block that
// can hold a candidate is looked at element by element.
constexpr size_t kBlock = 64;

}  // namespace

// In independent lanes: the compiler may not reorder a single chain of comparisons.
float block_max(const float* x, size_t n) {
  constexpr size_t kLanes = 16;
  float lanes[kLanes];
  std::fill_n(lanes, kLanes, kNever);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (size_t l = 0; l < kLanes; ++l) {
      lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
    }
  }
  for (; i < n; ++i) {
    lanes[0] = x[i] > lanes[0] ? x[i] : lanes[0];
  }
  return *std::max_element(lanes, lanes + kLanes);
}

float log_sum_exp(std::span<const float> logits) {
  const float highest = block_max(logits.data(), logits.size());
  double sum = 0.0;
  for (size_t i = 0; i < logits.size(); i += kBlock) {
    float part = 0.0f;
    const size_t end = std::min(i + kBlock, logits.size());
    for (size_t j = i; j < end; ++j) {
      part += std::exp(logits[j] - highest);
    }
    sum += part;
  }
  return highest + static_cast<float>(std::log(sum));
}

int32_t arg_max(std::span<const float> logits, float highest) {
  for (size_t i = 0; i < logits.size(); i += kBlock) {
    const size_t n = std::min(kBlock, logits.size() - i);
    if (block_max(logits.data() + i, n) == highest) {
      return static_cast<int32_t>(
          i + std::distance(
                  logits.data() + i, std::find(logits.data() + i, logits.data() + i + n, highest)));
    }
  }
  return 0;
}

void collect_best(std::span<const float> row, size_t n, std::vector<Candidate>& out) {
  out.clear();
  if (n == 0) {
    return;
  }
  const auto cut = [&] {
    std::nth_element(out.begin(), out.begin() + static_cast<int64_t>(n) - 1, out.end(), better);
    out.resize(n);
  };
  float threshold = kNever;
  for (size_t i = 0; i < row.size(); i += kBlock) {
    const size_t block = std::min(kBlock, row.size() - i);
    if (!(block_max(row.data() + i, block) > threshold)) {
      continue;
    }
    for (size_t j = i; j < i + block; ++j) {
      if (row[j] > threshold) {
        out.push_back({row[j], static_cast<int32_t>(j)});
      }
    }
    // Twice n collected: the n-th best so far is a bound that nothing below it can pass.
    if (out.size() / 2 >= n) {
      cut();
      threshold = out[n - 1].logit;
    }
  }
  if (out.size() > n) {
    cut();
  }
}

void collect_above(std::span<const float> row, float bound, std::vector<Candidate>& out) {
  out.clear();
  for (size_t i = 0; i < row.size(); i += kBlock) {
    const size_t block = std::min(kBlock, row.size() - i);
    if (block_max(row.data() + i, block) >= bound) {
      for (size_t j = i; j < i + block; ++j) {
        if (row[j] >= bound) {
          out.push_back({row[j], static_cast<int32_t>(j)});
        }
      }
    }
  }
}

void Candidates::start(std::span<const float> row) {
  row_ = row;
  copied_ = false;
  whole_ = true;
  list_.clear();
  sorted_ = 0;
}

std::span<float> Candidates::changed_row() {
  if (!copied_) {
    copy_.assign(row_.begin(), row_.end());
    row_ = copy_;
    copied_ = true;
  }
  return copy_;
}

std::vector<Candidate>& Candidates::list() {
  if (whole_) {
    whole_ = false;
    list_.clear();
    list_.reserve(row_.size());
    for (size_t i = 0; i < row_.size(); ++i) {
      if (row_[i] > kNever) {
        list_.push_back({row_[i], static_cast<int32_t>(i)});
      }
    }
  }
  return list_;
}

size_t Candidates::size() {
  return list().size();
}

float Candidates::highest() {
  if (whole_) {
    return block_max(row_.data(), row_.size());
  }
  const auto& all = list_;
  if (sorted_ > 0) {
    return all.front().logit;
  }
  float highest = kNever;
  for (const Candidate& c : all) {
    highest = c.logit > highest ? c.logit : highest;
  }
  return highest;
}

std::span<Candidate> Candidates::best(size_t n) {
  auto& all = list();
  n = std::min(n, all.size());
  if (n > sorted_) {
    const auto begin = all.begin() + static_cast<int64_t>(sorted_);
    const auto end = all.begin() + static_cast<int64_t>(n);
    if (n < all.size()) {
      std::nth_element(begin, end - 1, all.end(), better);
    }
    std::sort(begin, end, better);
    sorted_ = n;
  }
  return std::span(all).first(n);
}

void Candidates::keep_best(size_t n) {
  if (whole_) {
    whole_ = false;
    collect_best(row_, n, list_);
  }
  n = best(n).size();
  list_.resize(n);
}

void Candidates::drop_front(size_t n) {
  list_.erase(list_.begin(), list_.begin() + static_cast<int64_t>(n));
  sorted_ -= n;
}

void Candidates::keep_above(float logit, size_t at_least) {
  if (whole_) {
    collect_above(row_, logit, list_);
    if (list_.size() < at_least) {
      return keep_best(at_least);
    }
    whole_ = false;
    return;
  }
  const auto left = static_cast<size_t>(std::count_if(
      list_.begin(), list_.end(), [&](const Candidate& c) { return c.logit >= logit; }));
  if (left < at_least) {
    return keep_best(at_least);
  }
  std::erase_if(list_, [&](const Candidate& c) { return !(c.logit >= logit); });
  sorted_ = std::min(sorted_, left);
}

}  // namespace quince
