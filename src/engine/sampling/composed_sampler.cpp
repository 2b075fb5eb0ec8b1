#include "engine/sampling/composed_sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <mlx/ops.h>
#include <mlx/random.h>

#include "base/error.h"
#include "engine/sampling/composed_filters.h"
#include "engine/sampling/random.h"

namespace quince {

namespace mx = mlx::core;

namespace {

mx::array ids_array(std::span<const int32_t> ids) {
  return mx::array(ids.data(), {static_cast<int>(ids.size())}, mx::int32);
}

std::vector<int32_t> within(std::span<const int32_t> ids, int vocabulary) {
  std::vector<int32_t> out;
  std::copy_if(ids.begin(), ids.end(), std::back_inserter(out), [&](int32_t id) {
    return id >= 0 && id < vocabulary;
  });
  return out;
}

mx::array ban(const mx::array& row, std::span<const int32_t> ids) {
  const std::vector<int32_t> known = within(ids, row.shape(0));
  if (known.empty()) {
    return row;
  }
  const mx::array never = mx::full({static_cast<int>(known.size())}, composed::never());
  return mx::put_along_axis(row, ids_array(known), never, 0);
}

// Whether a mask has a bit besides those of ids.
bool has_others(MaskWords mask, const MaskWords& ids) {
  for (size_t i = 0; i < std::min(mask.size(), ids.size()); ++i) {
    mask[i] &= ~ids[i];
  }
  return std::any_of(mask.begin(), mask.end(), [](uint32_t word) { return word != 0; });
}

}  // namespace

ComposedSampler::ComposedSampler(
    const SamplingParams& params, std::span<const int32_t> prompt, uint64_t seed)
    : params_(params), seed_(seed), chain_(make_chain(params)) {
  const auto runs = [&](SamplerStep step) {
    return std::find(chain_.steps.begin(), chain_.steps.end(), step) != chain_.steps.end();
  };
  if (runs(SamplerStep::dry)) {
    throw UserError(
        "dry_multiplier is {}, but DRY is sampled on the CPU device only: want 0, or --device cpu",
        params.dry_multiplier);
  }
  if (runs(SamplerStep::penalties) && params.repetition_penalty != 1.0f &&
      params.repeat_last_n != 0) {
    const auto window = static_cast<size_t>(params.repeat_last_n);
    const bool all = params.repeat_last_n < 0 || prompt.size() <= window;
    recent_ = ids_array(all ? prompt : prompt.last(window));
  }
  if (chain_.mirostat) {
    mu_ = mx::array(2.0f * params.mirostat_tau);
  }
}

ComposedRow ComposedSampler::sample(const mx::array& logits, const MaskWords* mask, int top) {
  return choose(logits, banned(logits, mask), top);
}

ComposedRow ComposedSampler::sample_among(
    const mx::array& logits, const mx::array& words, int top) {
  mx::array row = mx::where(composed::mask(words, logits.shape(0)), logits, composed::never());
  row = ban_words(among_allowed(std::move(row)));
  return choose(logits, biased(std::move(row)), top);
}

void ComposedSampler::skip(std::span<const int32_t> tokens, int vocabulary) {
  for (const int32_t token : tokens) {
    accept(mx::array({token}), vocabulary);
  }
}

ComposedRow ComposedSampler::choose(const mx::array& logits, mx::array row, int top) {
  for (const SamplerStep step : chain_.steps) {
    row = run(step, row);
  }
  const mx::array token = draw(std::move(row));
  accept(token, logits.shape(0));
  return described(logits, token, params_.wants_logprobs(), top);
}

mx::array ComposedSampler::banned(mx::array row, const MaskWords* mask) {
  const int size = row.shape(0);
  if (mask != nullptr) {
    row = mx::where(composed::mask(*mask, size), row, composed::never());
  }
  row = among_allowed(std::move(row));
  std::vector<int32_t> ends;
  if (params_.ignore_eos || step_ < static_cast<uint64_t>(params_.min_tokens)) {
    ends = params_.end_tokens;
  }
  if (step_ < static_cast<uint64_t>(params_.min_tokens)) {
    ends.insert(ends.end(), params_.stop_tokens.begin(), params_.stop_tokens.end());
  }
  if (mask == nullptr || has_others(*mask, mask_of(ends))) {
    row = ban(row, ends);
  }
  return biased(ban_words(std::move(row)));
}

mx::array ComposedSampler::among_allowed(mx::array row) {
  if (!params_.allowed_token_ids.empty()) {
    if (!allowed_) {
      allowed_ = composed::mask(mask_of(params_.allowed_token_ids), row.shape(0));
    }
    row = mx::where(*allowed_, row, composed::never());
  }
  return row;
}

mx::array ComposedSampler::biased(mx::array row) const {
  std::vector<int32_t> ids;
  std::vector<float> biases;
  for (const auto& [token, bias] : params_.logit_bias) {
    if (token >= 0 && token < row.shape(0)) {
      ids.push_back(token);
      biases.push_back(bias);
    }
  }
  if (!ids.empty()) {
    const mx::array values = mx::array(biases.data(), {static_cast<int>(ids.size())}, mx::float32);
    row = mx::scatter_add_axis(row, ids_array(ids), values, 0);
  }
  return row;
}

mx::array ComposedSampler::ban_words(mx::array row) const {
  for (const auto& word : params_.bad_words) {
    const size_t before = word.size() - 1;
    if (before > output_.size() || within(word, row.shape(0)).size() != word.size()) {
      continue;
    }
    if (before == 0) {
      row = ban(row, word);
      continue;
    }
    const std::vector<mx::array> last(output_.end() - static_cast<int64_t>(before), output_.end());
    const mx::array follows =
        mx::all(mx::equal(mx::concatenate(last), ids_array(std::span(word).first(before))));
    const mx::array id = ids_array(std::span(word).last(1));
    row =
        mx::put_along_axis(row, id, mx::where(follows, composed::never(), mx::take(row, id, 0)), 0);
  }
  return row;
}

mx::array ComposedSampler::run(SamplerStep step, const mx::array& row) const {
  switch (step) {
    case SamplerStep::penalties:
      return penalized(row);
    case SamplerStep::dry:
      return row;  // refused by the constructor
    case SamplerStep::top_n_sigma:
      return composed::top_n_sigma(row, params_.top_n_sigma);
    case SamplerStep::top_k:
      return composed::top_k(row, params_.top_k);
    case SamplerStep::typical_p:
      return composed::typical(row, params_.typical_p, params_.min_keep);
    case SamplerStep::top_p:
      return composed::top_p(row, params_.top_p, params_.min_keep);
    case SamplerStep::min_p:
      return composed::min_p(row, params_.min_p, params_.min_keep);
    case SamplerStep::xtc:
      if (uniform(seed_, step_, Draw::xtc) < params_.xtc_probability) {
        return composed::exclude_top_choices(row, params_.xtc_threshold, params_.min_keep);
      }
      return row;
    case SamplerStep::temperature:
      return composed::temperature(
          row, params_.temperature, params_.dynatemp_range, params_.dynatemp_exponent);
  }
  return row;
}

mx::array ComposedSampler::penalized(mx::array row) const {
  if (recent_ && recent_->size() > 0) {
    // Equal ids write equal values, so that duplicates in the window do no harm.
    const mx::array seen = mx::take(row, *recent_, 0);
    const mx::array penalty = mx::array(params_.repetition_penalty);
    const mx::array changed = mx::where(
        mx::greater(seen, mx::array(0.0f)), mx::divide(seen, penalty), mx::multiply(seen, penalty));
    row = mx::put_along_axis(row, *recent_, changed, 0);
  }
  if (counts_) {
    const mx::array loss = mx::add(
        mx::array(params_.presence_penalty),
        mx::multiply(mx::array(params_.frequency_penalty), *counts_));
    row = mx::where(mx::greater(*counts_, mx::array(0.0f)), mx::subtract(row, loss), row);
  }
  return row;
}

mx::array ComposedSampler::draw(mx::array row) {
  if (chain_.greedy) {
    return mx::astype(mx::argmax(row, 0, true), mx::int32);
  }
  if (mu_) {
    row = composed::mirostat(row, *mu_, params_.mirostat);
  }
  const auto key = mx::random::key(mix(mix(seed_) ^ step_));
  const mx::array token =
      mx::reshape(mx::astype(mx::random::categorical(row, -1, key), mx::int32), {1});
  if (mu_) {
    const mx::array log_p =
        mx::reshape(mx::subtract(mx::take(row, token, 0), mx::logsumexp(row)), {});
    const mx::array surprise =
        mx::multiply(log_p, mx::array(static_cast<float>(-1.0 / std::log(2.0))));
    mu_ = mx::subtract(
        *mu_,
        mx::multiply(
            mx::array(params_.mirostat_eta),
            mx::subtract(surprise, mx::array(params_.mirostat_tau))));
  }
  return token;
}

ComposedRow ComposedSampler::report(const mx::array& logits, int32_t token, int top) const {
  return described(logits, mx::array({token}), true, top);
}

ComposedRow ComposedSampler::described(
    const mx::array& logits, mx::array token, bool logprob, int top) const {
  ComposedRow row{std::move(token), mx::array({std::numeric_limits<float>::quiet_NaN()}), {}, {}};
  const mx::array total = mx::logsumexp(logits, true);
  if (logprob) {
    row.logprob = mx::subtract(mx::take(logits, row.id, 0), total);
  }
  if (top > 0) {
    const int asked = std::min(params_.top_logprobs, top);
    mx::array ids = mx::full({top}, -1, mx::int32);
    mx::array logprobs = mx::full({top}, composed::never());
    if (asked > 0) {
      const mx::array best =
          mx::astype(mx::slice(mx::argsort(mx::negative(logits), 0), {0}, {asked}), mx::int32);
      ids = mx::slice_update(ids, best, {0}, {asked});
      logprobs =
          mx::slice_update(logprobs, mx::subtract(mx::take(logits, best, 0), total), {0}, {asked});
    }
    row.top_ids = mx::reshape(ids, {1, top});
    row.top_logprobs = mx::reshape(logprobs, {1, top});
  }
  return row;
}

void ComposedSampler::accept(const mx::array& token, int vocabulary) {
  ++step_;
  if (recent_) {
    const mx::array window = mx::concatenate({*recent_, token}, 0);
    const int surplus = params_.repeat_last_n < 0 ? 0 : window.shape(0) - params_.repeat_last_n;
    recent_ = surplus > 0 ? mx::slice(window, {surplus}, {window.shape(0)}) : window;
  }
  if (params_.presence_penalty != 0.0f || params_.frequency_penalty != 0.0f) {
    const mx::array before = counts_ ? *counts_ : mx::zeros({vocabulary});
    counts_ = mx::scatter_add_axis(before, token, mx::ones({1}), 0);
  }
  size_t longest = 1;
  for (const auto& word : params_.bad_words) {
    longest = std::max(longest, word.size());
  }
  if (longest > 1) {
    output_.push_back(token);
    if (output_.size() > longest - 1) {
      output_.erase(output_.begin());
    }
  }
}

}  // namespace quince
