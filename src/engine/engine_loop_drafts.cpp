// The engine loop's drafted tokens: whose, and what became of them.
#include <algorithm>
#include <set>
#include <stdexcept>
#include <utility>

#include "engine/engine_loop.h"

namespace quince {

bool EngineLoop::may_draft(const Sequence& sequence) const {
  const bool watched = sequence.reasoning && !sequence.reasoning->over();
  return !sequence.request.constraint && !watched && !sequence.paused &&
         sequence.request.params.max_tokens - sequence.generated() > 1 &&
         sequence.cache->can_undo(1 + options_.draft_tokens);
}

// Guesses what follows, where that is worth it: then the step under way is read first, since a
// guess goes on from its token.
void EngineLoop::draft() {
  if (!speculator_) {
    return;
  }
  std::set<SequenceId> sampling;  // whose next token is not known yet
  if (in_flight_) {
    for (const Sample& sample : in_flight_->samples) {
      if (sample.nth > 0) {
        sampling.insert(sample.id);
      }
    }
  }
  std::vector<SequenceId> decoding;
  for (const auto& [id, sequence] : sequences_) {
    if (sampling.contains(id) || sequence.generated() > 0) {
      decoding.push_back(id);
    }
  }
  const auto count = static_cast<int>(decoding.size());
  const bool worth = std::any_of(sampling.begin(), sampling.end(), [&](SequenceId id) {
    const auto found = sequences_.find(id);
    return found != sequences_.end() && may_draft(found->second) &&
           speculator_->worth(id, found->second.tokens, count);
  });
  if (worth) {
    read(*std::exchange(in_flight_, std::nullopt));
    sampling.clear();
  }
  std::vector<Speculator::Ask> asks;
  for (const SequenceId id : decoding) {
    const auto found = sequences_.find(id);
    if (found != sequences_.end() && !sampling.contains(id) && may_draft(found->second)) {
      asks.push_back({id, found->second.tokens, {}});
    }
  }
  try {
    speculator_->guess(asks, count);
  } catch (const std::exception&) {
    speculator_.reset();  // the draft model fails: answers come without it
    return;
  }
  for (Speculator::Ask& ask : asks) {
    scheduler_.draft(ask.id, static_cast<int>(ask.guess.size()));
    sequences_.at(ask.id).draft = std::move(ask.guess);
  }
}

// How many of the drafted tokens were right; takes the others back.
int EngineLoop::judge(const Step& step, size_t first) {
  const Sample& sample = step.samples[first];
  Sequence& sequence = sequences_.at(sample.id);
  const int32_t* ids = step.rows->ids.data<int32_t>() + first;
  int right = 0;
  while (right < sample.drafts && ids[right] == sequence.draft[static_cast<size_t>(right)]) {
    ++right;
  }
  const int wrong = sample.drafts - right;
  if (sequence.cache->length() > 0 && !sequence.cache->trim(wrong)) {
    scheduler_.settle(sequence.id, right);
    fail(
        {sample.id},
        std::make_exception_ptr(
            std::logic_error("[EngineLoop] a cache cannot take drafted tokens back")));
    return 0;
  }
  scheduler_.settle(sequence.id, right);
  sequence.sampler->settle(right);
  sequence.sampled -= wrong;
  sequence.draft.clear();
  sequence.stats.drafted_tokens += sample.drafts;
  sequence.stats.accepted_tokens += right;
  if (speculator_) {  // else its model has failed since
    speculator_->judged(sequence.id, sample.drafts, right);
  }
  ++drafts_;
  drafted_ += sample.drafts;
  accepted_ += right;
  return right;
}

void EngineLoop::time(const Step& step) {
  const auto now = std::chrono::steady_clock::now();
  if (speculator_ && step.decoded > 0) {
    const std::chrono::duration<double> took = now - std::max(step.started, last_read_);
    speculator_->step_took(step.decoded, took.count());
  }
  last_read_ = now;
}

}  // namespace quince
