// Sampling as its definitions read, with no regard for speed: what the samplers are judged by. A
// choice is a map from token to logit.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "engine/sampling_params.h"

namespace quince::reference {

using Choice = std::map<int32_t, double>;

inline Choice choice_of(std::span<const float> logits) {
  Choice choice;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > -INFINITY) {
      choice[static_cast<int32_t>(i)] = logits[i];
    }
  }
  return choice;
}

inline std::map<int32_t, double> probabilities(const Choice& choice) {
  double highest = -INFINITY;
  for (const auto& [id, x] : choice) {
    highest = std::max(highest, x);
  }
  double sum = 0;
  std::map<int32_t, double> p;
  for (const auto& [id, x] : choice) {
    sum += p[id] = std::exp(x - highest);
  }
  for (auto& [id, x] : p) {
    x /= sum;
  }
  return p;
}

// Ids by key, highest first, of equal ones the lower id.
template <class Key>
std::vector<int32_t> sorted(const Choice& choice, Key key) {
  std::vector<int32_t> ids;
  for (const auto& [id, x] : choice) {
    ids.push_back(id);
  }
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return key(a) > key(b); });
  return ids;
}

inline Choice only(const Choice& choice, const std::vector<int32_t>& ids, size_t n) {
  Choice out;
  for (size_t i = 0; i < std::min(n, ids.size()); ++i) {
    out[ids[i]] = choice.at(ids[i]);
  }
  return out;
}

inline double entropy(const Choice& choice) {
  double h = 0;
  for (const auto& [id, p] : probabilities(choice)) {
    h -= p > 0 ? p * std::log(p) : 0;
  }
  return h;
}

inline Choice penalize(
    Choice choice,
    const SamplingParams& params,
    const std::vector<int32_t>& prompt,
    const std::vector<int32_t>& output) {
  std::vector<int32_t> all = prompt;
  all.insert(all.end(), output.begin(), output.end());
  if (params.repeat_last_n >= 0 && std::ssize(all) > params.repeat_last_n) {
    all.erase(all.begin(), all.end() - params.repeat_last_n);
  }
  for (auto& [id, x] : choice) {
    if (std::count(all.begin(), all.end(), id) > 0) {
      x = x > 0 ? x / params.repetition_penalty : x * params.repetition_penalty;
    }
    const auto times = std::count(output.begin(), output.end(), id);
    if (times > 0) {
      x -= params.presence_penalty + params.frequency_penalty * static_cast<double>(times);
    }
  }
  return choice;
}

// Every token is tried: how long is the longest sequence that it would repeat?
inline Choice dry(Choice choice, const SamplingParams& params, std::vector<int32_t> history) {
  if (params.dry_penalty_last_n >= 0 && std::ssize(history) > params.dry_penalty_last_n) {
    history.erase(history.begin(), history.end() - params.dry_penalty_last_n);
  }
  const auto n = static_cast<int>(history.size());
  const auto& breakers = params.dry_sequence_breakers;
  const auto stands_at = [&](const std::vector<int32_t>& word, int at) {
    return at + std::ssize(word) <= n && std::equal(word.begin(), word.end(), history.begin() + at);
  };
  int begin = 0;  // behind the longest breaker that begins last
  for (int at = 0; at < n; ++at) {
    int length = 0;
    for (const auto& word : breakers) {
      length = stands_at(word, at) ? std::max(length, static_cast<int>(word.size())) : length;
    }
    begin = length > 0 ? at + length : begin;
  }
  if (n - begin < params.dry_allowed_length) {
    return choice;
  }
  for (auto& [id, x] : choice) {
    if (std::count(breakers.begin(), breakers.end(), std::vector<int32_t>{id}) > 0) {
      continue;
    }
    int longest = -1;
    for (int at = 0; at < n; ++at) {
      if (history[at] != id) {
        continue;
      }
      int same = 0;  // tokens before `at` that are the last ones too
      while (same < at && n - 1 - same >= begin &&
             history[at - 1 - same] == history[n - 1 - same]) {
        ++same;
      }
      longest = std::max(longest, at == 0 ? -1 : same);
    }
    if (n > params.dry_allowed_length && longest >= params.dry_allowed_length) {
      x -= params.dry_multiplier * std::pow(params.dry_base, longest - params.dry_allowed_length);
    }
  }
  return choice;
}

inline Choice top_k(const Choice& choice, int k) {
  return only(
      choice, sorted(choice, [&](int32_t id) { return choice.at(id); }), static_cast<size_t>(k));
}

inline Choice top_p(const Choice& choice, double p, size_t min_keep) {
  const auto shares = probabilities(choice);
  const auto ids = sorted(choice, [&](int32_t id) { return choice.at(id); });
  double sum = 0;
  size_t n = 0;
  while (n < ids.size() && (n == 0 || sum < p || n < min_keep)) {
    sum += shares.at(ids[n++]);
  }
  return only(choice, ids, n);
}

inline Choice min_p(const Choice& choice, double p, size_t min_keep) {
  const auto shares = probabilities(choice);
  const auto ids = sorted(choice, [&](int32_t id) { return choice.at(id); });
  size_t n = 0;
  while (n < ids.size() && (n < min_keep || shares.at(ids[n]) >= p * shares.at(ids[0]))) {
    ++n;
  }
  return only(choice, ids, n);
}

inline Choice typical_p(const Choice& choice, double p, size_t min_keep) {
  const auto shares = probabilities(choice);
  const double h = entropy(choice);
  const auto ids =
      sorted(choice, [&](int32_t id) { return -std::abs(-std::log(shares.at(id)) - h); });
  double sum = 0;
  size_t n = 0;
  while (n < ids.size() && (n == 0 || sum <= p || n < min_keep)) {
    sum += shares.at(ids[n++]);
  }
  return only(choice, ids, n);
}

inline Choice top_n_sigma(const Choice& choice, double sigmas) {
  double mean = 0;
  double square = 0;
  double highest = -INFINITY;
  for (const auto& [id, x] : choice) {
    mean += x / static_cast<double>(choice.size());
    square += x * x / static_cast<double>(choice.size());
    highest = std::max(highest, x);
  }
  Choice out;
  for (const auto& [id, x] : choice) {
    if (x >= highest - sigmas * std::sqrt(square - mean * mean)) {
      out[id] = x;
    }
  }
  return out;
}

inline Choice xtc(const Choice& choice, double threshold, size_t min_keep) {
  const auto shares = probabilities(choice);
  const auto ids = sorted(choice, [&](int32_t id) { return choice.at(id); });
  size_t reach = 0;
  while (reach < ids.size() && shares.at(ids[reach]) >= threshold) {
    ++reach;
  }
  Choice out = choice;
  if (reach >= 2 && choice.size() - (reach - 1) >= min_keep) {
    for (size_t i = 0; i + 1 < reach; ++i) {
      out.erase(ids[i]);
    }
  }
  return out;
}

inline Choice temperature(Choice choice, const SamplingParams& params) {
  double t = params.temperature;
  if (params.dynatemp_range > 0) {
    if (choice.size() < 2) {
      return choice;
    }
    const double low = std::max(0.0f, params.temperature - params.dynatemp_range);
    const double high = params.temperature + params.dynatemp_range;
    const double share = entropy(choice) / std::log(static_cast<double>(choice.size()));
    t = low + (high - low) * std::pow(share, params.dynatemp_exponent);
  }
  if (t == 0) {
    return top_k(choice, 1);
  }
  for (auto& [id, x] : choice) {
    x /= t;
  }
  return choice;
}

// All steps in the order of params.samplers. excludes: whether xtc acts in this step.
inline Choice run(
    Choice choice,
    const SamplingParams& params,
    const std::vector<int32_t>& prompt,
    const std::vector<int32_t>& output,
    bool excludes) {
  const auto min_keep = static_cast<size_t>(params.min_keep);
  std::vector<int32_t> history = prompt;
  history.insert(history.end(), output.begin(), output.end());
  for (const SamplerStep step : params.samplers) {
    switch (step) {
      case SamplerStep::penalties:
        choice = penalize(choice, params, prompt, output);
        break;
      case SamplerStep::dry:
        choice = params.dry_multiplier > 0 ? dry(choice, params, history) : choice;
        break;
      case SamplerStep::top_n_sigma:
        choice = params.top_n_sigma > 0 ? top_n_sigma(choice, params.top_n_sigma) : choice;
        break;
      case SamplerStep::top_k:
        choice = params.top_k > 0 ? top_k(choice, params.top_k) : choice;
        break;
      case SamplerStep::typical_p:
        choice = params.typical_p < 1 ? typical_p(choice, params.typical_p, min_keep) : choice;
        break;
      case SamplerStep::top_p:
        choice = params.top_p < 1 ? top_p(choice, params.top_p, min_keep) : choice;
        break;
      case SamplerStep::min_p:
        choice = params.min_p > 0 ? min_p(choice, params.min_p, min_keep) : choice;
        break;
      case SamplerStep::xtc:
        choice = excludes && params.xtc_threshold <= 0.5
                     ? xtc(choice, params.xtc_threshold, min_keep)
                     : choice;
        break;
      case SamplerStep::temperature:
        choice = temperature(choice, params);
        break;
    }
  }
  return choice;
}

}  // namespace quince::reference
