#include "engine/sampling/bans.h"

#include <algorithm>

namespace quince {

namespace {

void apply_mask(std::span<float> row, const MaskWords& mask) {
  for (size_t word = 0; word * 32 < row.size(); ++word) {
    const uint32_t bits = word < mask.size() ? mask[word] : 0;
    const size_t end = std::min(row.size() - word * 32, size_t{32});
    float* x = row.data() + word * 32;
    if (bits == 0) {
      std::fill_n(x, end, kNever);
    } else if (bits != ~uint32_t{0}) {
      for (size_t i = 0; i < end; ++i) {
        x[i] = (bits >> i & 1) != 0 ? x[i] : kNever;
      }
    }
  }
}

// Whether a masked row still has a number when these tokens are gone.
bool leaves_any(std::span<const float> row, std::span<const int32_t> without) {
  const auto here = std::count_if(row.begin(), row.end(), [](float x) { return x > kNever; });
  int64_t gone = 0;
  for (size_t i = 0; i < without.size(); ++i) {
    const auto token = static_cast<size_t>(without[i]);
    const bool again =
        std::find(without.begin(), without.begin() + static_cast<int64_t>(i), without[i]) !=
        without.begin() + static_cast<int64_t>(i);
    gone += !again && token < row.size() && row[token] > kNever ? 1 : 0;
  }
  return here > gone;
}

}  // namespace

MaskWords mask_of(std::span<const int32_t> ids) {
  MaskWords mask;
  for (const int32_t id : ids) {
    if (id < 0) {
      continue;
    }
    const auto token = static_cast<size_t>(id);
    mask.resize(std::max(mask.size(), token / 32 + 1), 0);
    mask[token / 32] |= uint32_t{1} << token % 32;
  }
  return mask;
}

std::vector<int32_t> completing(
    std::span<const std::vector<int32_t>> bad_words, std::span<const int32_t> generated) {
  std::vector<int32_t> tokens;
  for (const auto& word : bad_words) {
    const size_t before = word.size() - 1;
    if (before <= generated.size() &&
        std::equal(word.begin(), word.end() - 1, generated.end() - static_cast<int64_t>(before))) {
      tokens.push_back(word.back());
    }
  }
  return tokens;
}

Bans::Bans(const SamplingParams& params)
    : allowed_(mask_of(params.allowed_token_ids)),
      min_tokens_(static_cast<size_t>(params.min_tokens)),
      bad_words_(params.bad_words),
      bias_(params.logit_bias.begin(), params.logit_bias.end()) {
  if (params.ignore_eos) {
    always_ = params.end_tokens;
  }
  if (params.min_tokens > 0) {
    at_first_ = params.end_tokens;
    at_first_.insert(at_first_.end(), params.stop_tokens.begin(), params.stop_tokens.end());
  }
}

std::span<const int32_t> Bans::banned_ends(size_t generated) const {
  return generated < min_tokens_ ? at_first_ : always_;
}

void Bans::apply(
    Candidates& candidates, const MaskWords* mask, std::span<const int32_t> generated) const {
  const auto ends = banned_ends(generated.size());
  if (mask == nullptr && allowed_.empty() && ends.empty() && bad_words_.empty() && bias_.empty()) {
    return;
  }
  const std::span<float> row = candidates.changed_row();
  if (mask != nullptr) {
    apply_mask(row, *mask);
  }
  if (!allowed_.empty()) {
    apply_mask(row, allowed_);
  }
  const auto ban = [&](int32_t token) {
    if (token >= 0 && static_cast<size_t>(token) < row.size()) {
      row[token] = kNever;
    }
  };
  if (!ends.empty() && (mask == nullptr || leaves_any(row, ends))) {
    std::for_each(ends.begin(), ends.end(), ban);
  }
  for (const int32_t token : completing(bad_words_, generated)) {
    ban(token);
  }
  for (const auto& [token, bias] : bias_) {
    if (token >= 0 && static_cast<size_t>(token) < row.size()) {
      row[token] += bias;
    }
  }
}

}  // namespace quince
