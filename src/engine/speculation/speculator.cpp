#include "engine/speculation/speculator.h"

#include <algorithm>
#include <chrono>

namespace quince {

namespace {

// Native kernels compute up to so many rows in one way, and more in another, whose results differ
// in their last bits: a step that could stay with the first does, so that drafts change nothing.
constexpr int kRowsAlike = 8;
// Until a guess has been seen to be right: enough to learn from, not enough to lose much.
constexpr int kTrial = 2;

}  // namespace

Speculator::Speculator(int most, bool always, std::unique_ptr<DraftModel> model)
    : most_(most), always_(always), model_(std::move(model)) {}

// Drafted tokens of one sequence beside so many rows.
int Speculator::room(int decoding) const {
  const int alike = decoding <= kRowsAlike ? kRowsAlike - decoding : most_;
  return std::clamp(alike, 0, most_);
}

int Speculator::length(const Sequence& sequence, size_t kind, int decoding) const {
  if (always_) {
    return most_;
  }
  const int best = best_draft_length(
      sequence.records[kind].probability(),
      cost_,
      decoding,
      room(decoding),
      kind == 0 ? draft_seconds_ : 0);
  return best == 0 && sequence.trial ? std::min(kTrial, room(decoding)) : best;
}

bool Speculator::worth(SequenceId id, std::span<const int32_t> tokens, int decoding) {
  Sequence& sequence = sequences_[id];
  const auto seems = [&](size_t kind) {
    return length(sequence, kind, decoding) > 0 ||
           (sequence.trial = sequence.records[kind].try_again() && room(decoding) > 0);
  };
  if (model_ && seems(0)) {
    return true;
  }
  const int matched = sequence.texts.guess(tokens, 1).matched;
  return matched > 0 && seems(static_cast<size_t>(1 + matched - NgramIndex::kShortest));
}

void Speculator::guess(std::span<Ask> asks, int decoding) {
  std::vector<DraftModel::Ask> of_model;
  std::vector<Ask*> whose;
  int rows = decoding;
  for (Ask& ask : asks) {
    Sequence& sequence = sequences_[ask.id];
    NgramIndex::Guess text = sequence.texts.guess(ask.tokens, most_);
    const auto text_kind = static_cast<size_t>(1 + text.matched - NgramIndex::kShortest);
    const int of_text = text.matched > 0 ? length(sequence, text_kind, rows) : 0;
    const int modelled = model_ ? length(sequence, 0, rows) : 0;
    sequence.trial = false;
    const bool by_text =
        of_text > 0 && (modelled == 0 || sequence.records[text_kind].probability() >=
                                             sequence.records[0].probability());
    if (by_text) {
      text.tokens.resize(static_cast<size_t>(of_text));
      ask.guess = std::move(text.tokens);
      sequence.kind = text_kind;
      rows += of_text;
    } else if (modelled > 0) {
      of_model.push_back({ask.id, ask.tokens, modelled, {}});
      whose.push_back(&ask);
      sequence.kind = 0;
      rows += modelled;
    }
  }
  if (of_model.empty()) {
    return;
  }
  const auto begin = std::chrono::steady_clock::now();
  model_->guess(of_model);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  size_t tokens = 0;
  for (size_t i = 0; i < of_model.size(); ++i) {
    tokens += of_model[i].guess.size();
    whose[i]->guess = std::move(of_model[i].guess);
  }
  if (tokens > 0) {
    const double each = took.count() / static_cast<double>(tokens);
    draft_seconds_ += draft_seconds_ == 0 ? each : 0.2 * (each - draft_seconds_);
  }
}

void Speculator::judged(SequenceId id, int drafted, int right) {
  Sequence& sequence = sequences_[id];
  sequence.records[sequence.kind].judged(drafted, right);
}

void Speculator::step_took(int rows, double seconds) {
  cost_.took(rows, seconds);
}

void Speculator::forget(SequenceId id) {
  sequences_.erase(id);
  if (model_) {
    model_->forget(id);
  }
}

}  // namespace quince
