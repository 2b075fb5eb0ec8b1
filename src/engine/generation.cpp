#include "engine/generation.h"

#include <algorithm>

#include <mlx/device.h>
#include <mlx/ops.h>
#include <mlx/transforms.h>

namespace quince {

namespace mx = mlx::core;

namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// A sampled token that has been asked for and perhaps not been computed yet.
struct Pending {
  mx::array id;
  mx::array logprob;

  GeneratedToken read() {
    return {id.item<int32_t>(), logprob.item<float>()};
  }
};

class Generation {
 public:
  Generation(Model& model, Request& request, Timeline& timeline, int prefill_chunk)
      : model_(model),
        request_(request),
        timeline_(timeline),
        prefill_chunk_(prefill_chunk),
        sampler_(make_sampler(request.params, request.prompt, mx::default_device())) {}

  FinishReason run() {
    const auto started = Clock::now();
    stats_.prompt_tokens = static_cast<int>(request_.prompt.size());
    stats_.cached_tokens = reuse_prefix(timeline_, request_.prompt);
    if (!prefill_all_but_last_chunk()) {
      return FinishReason::cancelled;
    }
    if (request_.params.max_tokens == 0) {
      return FinishReason::length;
    }
    const auto rest = remaining_prompt();
    Pending pending = step(mx::array(rest.begin(), {static_cast<int>(rest.size())}, mx::int32));
    timeline_.tokens = request_.prompt;
    return decode(std::move(pending), started);
  }

 private:
  std::span<const int32_t> remaining_prompt() const {
    return std::span(request_.prompt).subspan(timeline_.tokens.size());
  }

  // Chunks whose logits nobody wants. False: cancelled on the way.
  bool prefill_all_but_last_chunk() {
    while (static_cast<int>(remaining_prompt().size()) > prefill_chunk_) {
      if (request_.stream->cancelled()) {
        return false;
      }
      const auto chunk = remaining_prompt().first(prefill_chunk_);
      const Batch batch{
          mx::array(chunk.begin(), {prefill_chunk_}, mx::int32),
          {{timeline_.cache.get(), prefill_chunk_}},
          {}};
      mx::eval(model_.forward(batch));
      timeline_.tokens.insert(timeline_.tokens.end(), chunk.begin(), chunk.end());
    }
    return !request_.stream->cancelled();
  }

  // Feeds tokens and starts the computation of the next one.
  Pending step(const mx::array& tokens) {
    const int rows = tokens.shape(0);
    const Batch batch{tokens, {{timeline_.cache.get(), rows}}, {rows - 1}};
    auto [id, logprob] = sampler_->sample(model_.forward(batch));
    mx::async_eval({id, logprob});
    return {std::move(id), std::move(logprob)};
  }

  FinishReason decode(Pending pending, Clock::time_point started) {
    Clock::time_point first;
    for (int n = 1;; ++n) {
      // Started before token n is known to the host; wasted when that token ends the answer.
      std::optional<Pending> following;
      const bool last = n == request_.params.max_tokens;
      if (!last) {
        following = step(pending.id);
      }
      const GeneratedToken token = pending.read();
      const auto now = Clock::now();
      if (n == 1) {
        first = now;
        stats_.prompt_seconds = seconds(started, first);
      }
      if (following) {
        timeline_.tokens.push_back(token.id);
      }
      stats_.generation_seconds = seconds(first, now);
      if (is_stop(token.id)) {
        request_.stream->set_stats(stats_);
        return settle(following, FinishReason::stop);
      }
      stats_.generated_tokens = n;
      request_.stream->set_stats(stats_);
      request_.stream->push(token);
      if (request_.stream->cancelled()) {
        return settle(following, FinishReason::cancelled);
      }
      if (last) {
        return FinishReason::length;
      }
      pending = std::move(*following);
    }
  }

  // The step already under way still writes to the cache: wait, so that its errors are met here.
  FinishReason settle(std::optional<Pending>& following, FinishReason reason) {
    if (following) {
      mx::eval(following->id);
    }
    return reason;
  }

  bool is_stop(int32_t token) const {
    const auto& stops = request_.params.stop_tokens;
    return std::find(stops.begin(), stops.end(), token) != stops.end();
  }

  Model& model_;
  Request& request_;
  Timeline& timeline_;
  int prefill_chunk_;
  std::unique_ptr<Sampler> sampler_;
  GenerationStats stats_;
};

}  // namespace

int reuse_prefix(Timeline& timeline, const std::vector<int32_t>& prompt) {
  const auto limit = std::min(timeline.tokens.size(), prompt.size() - 1);
  const auto end = timeline.tokens.begin() + static_cast<int64_t>(limit);
  const auto common = std::mismatch(timeline.tokens.begin(), end, prompt.begin()).first;
  const int64_t surplus = std::distance(common, timeline.tokens.end());
  if (surplus > 0 && !timeline.cache->trim(surplus)) {
    timeline.cache->clear();
    timeline.tokens.clear();
    return 0;
  }
  timeline.tokens.erase(common, timeline.tokens.end());
  return static_cast<int>(timeline.tokens.size());
}

void generate(Model& model, Request& request, Timeline& timeline, int prefill_chunk) {
  try {
    request.stream->finish(Generation(model, request, timeline, prefill_chunk).run());
  } catch (...) {
    timeline.cache->clear();
    timeline.tokens.clear();
    throw;
  }
}

}  // namespace quince
