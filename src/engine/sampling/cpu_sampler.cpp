#include "engine/sampling/cpu_sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace quince {

namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// Blocks this long are first reduced to their maximum, which compilers vectorize; only a block that
// can hold a candidate is looked at element by element.
constexpr size_t kBlock = 64;

float block_max(const float* x, size_t n) {
  float highest = kLowest;
  for (size_t i = 0; i < n; ++i) {
    highest = x[i] > highest ? x[i] : highest;
  }
  return highest;
}

// splitmix64 (Steele, Lea, Flood 2014): one well mixed 64-bit value for every counter.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

double uniform(uint64_t seed, uint64_t step) {
  return static_cast<double>(mix(mix(seed) ^ step) >> 11) * 0x1.0p-53;
}

float log_sum_exp(std::span<const float> logits, float highest) {
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

}  // namespace

CpuSampler::CpuSampler(const SamplingParams& params, uint64_t seed)
    : params_(params), seed_(seed) {}

void CpuSampler::observe(std::span<const int32_t> tokens) {
  for (int32_t token : tokens) {
    remember(token);
  }
}

void CpuSampler::remember(int32_t token) {
  if (params_.repetition_penalty == 1.0f) {
    return;
  }
  recent_.push_back(token);
  if (params_.repetition_window >= 0 &&
      recent_.size() > static_cast<size_t>(params_.repetition_window)) {
    recent_.pop_front();
  }
}

// Copies the row only when something changes it.
std::span<const float> CpuSampler::adjusted(std::span<const float> logits) {
  if (params_.logit_bias.empty() && recent_.empty()) {
    return logits;
  }
  row_.assign(logits.begin(), logits.end());
  const auto size = static_cast<int64_t>(row_.size());
  for (const auto& [token, bias] : params_.logit_bias) {
    if (token >= 0 && token < size) {
      row_[token] += bias;
    }
  }
  // Keskar et al. 2019 (CTRL): once per distinct token, towards less likely whatever the sign.
  std::vector<int32_t> distinct(recent_.begin(), recent_.end());
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  for (int32_t token : distinct) {
    if (token >= 0 && token < size) {
      float& x = row_[token];
      x = x > 0 ? x / params_.repetition_penalty : x * params_.repetition_penalty;
    }
  }
  return row_;
}

// The top_k best, or all that could matter: best first.
void CpuSampler::collect_candidates(std::span<const float> logits, float highest) {
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  candidates_.clear();
  const size_t k =
      params_.top_k > 0 ? std::min<size_t>(params_.top_k, logits.size()) : logits.size();
  float threshold = kLowest;
  for (size_t i = 0; i < logits.size(); i += kBlock) {
    const size_t n = std::min(kBlock, logits.size() - i);
    if (!(block_max(logits.data() + i, n) > threshold)) {
      continue;
    }
    for (size_t j = i; j < i + n; ++j) {
      if (logits[j] > threshold) {
        candidates_.push_back({logits[j], static_cast<int32_t>(j)});
      }
    }
    // Twice k collected: the k-th best so far is a bound that nothing below it can pass.
    if (candidates_.size() >= 2 * k) {
      std::nth_element(candidates_.begin(), candidates_.begin() + k - 1, candidates_.end(), better);
      candidates_.resize(k);
      threshold = candidates_[k - 1].logit;
    }
  }
  if (candidates_.size() > k) {
    std::nth_element(candidates_.begin(), candidates_.begin() + k - 1, candidates_.end(), better);
    candidates_.resize(k);
  }
  // min_p is relative to the best, so it can cut before the costly sort: p >= min_p * p_best.
  if (params_.min_p > 0.0f) {
    const float lowest = highest + std::log(params_.min_p);
    std::erase_if(candidates_, [&](const Candidate& c) { return c.logit < lowest; });
  }
  std::sort(candidates_.begin(), candidates_.end(), better);
}

// top-p (Holtzman et al. 2019): the shortest prefix whose probability reaches p. Runs after top-k
// and min-p, on what they left.
void CpuSampler::keep_nucleus() {
  if (params_.top_p >= 1.0f) {
    return;
  }
  const float highest = candidates_.front().logit;
  double total = 0.0;
  weights_.clear();
  for (const Candidate& c : candidates_) {
    weights_.push_back(std::exp(static_cast<double>(c.logit) - highest));
    total += weights_.back();
  }
  double sum = 0.0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    sum += weights_[i];
    if (sum >= params_.top_p * total) {
      candidates_.resize(i + 1);
      return;
    }
  }
}

SampledToken CpuSampler::draw(std::span<const float> logits, float highest) {
  collect_candidates(logits, highest);
  keep_nucleus();
  const float best = candidates_.front().logit;
  double total = 0.0;
  weights_.clear();
  for (const Candidate& c : candidates_) {
    weights_.push_back(std::exp((static_cast<double>(c.logit) - best) / params_.temperature));
    total += weights_.back();
  }
  double left = uniform(seed_, step_) * total;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    left -= weights_[i];
    if (left < 0) {
      return {candidates_[i].id, 0.0f};
    }
  }
  return {candidates_.front().id, 0.0f};
}

SampledToken CpuSampler::sample(std::span<const float> logits) {
  const std::span<const float> row = adjusted(logits);
  const float highest = block_max(row.data(), row.size());
  if (!std::isfinite(highest)) {
    throw std::runtime_error("the model's logits hold no finite value");
  }
  SampledToken token;
  if (params_.temperature == 0.0f || params_.top_k == 1) {
    token.id = arg_max(row, highest);
  } else {
    token = draw(row, highest);
  }
  token.logprob = std::numeric_limits<float>::quiet_NaN();
  if (params_.logprobs) {
    const float raw_highest = block_max(logits.data(), logits.size());
    token.logprob = logits[token.id] - log_sum_exp(logits, raw_highest);
  }
  ++step_;
  remember(token.id);
  return token;
}

}  // namespace quince
