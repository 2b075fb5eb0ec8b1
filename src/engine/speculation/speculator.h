// Drafts for the engine: whose tokens are guessed, by what, and how many. Engine thread.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/speculation/draft_length.h"
#include "engine/speculation/draft_model.h"
#include "engine/speculation/ngram_index.h"

namespace quince {

class Speculator {
 public:
  // most: drafted tokens of one sequence in a step; always: whatever they cost. model: none; only
  // texts are looked up.
  Speculator(int most, bool always, std::unique_ptr<DraftModel> model);

  struct Ask {
    SequenceId id = 0;
    std::span<const int32_t> tokens;
    std::vector<int32_t> guess;
  };
  // Whether a guess about this sequence is likely to be worth its rows beside `decoding` that have
  // one each; told without the token that is being sampled. Now and then one is that was not of
  // late.
  bool worth(SequenceId id, std::span<const int32_t> tokens, int decoding);
  // Their tokens must all be known.
  void guess(std::span<Ask> asks, int decoding);

  void judged(SequenceId id, int drafted, int right);
  void step_took(int rows, double seconds);
  void forget(SequenceId id);

 private:
  // Kinds of guesses: the draft model's, and texts by how many tokens matched.
  static constexpr size_t kKinds = 2 + NgramIndex::kLongest - NgramIndex::kShortest;
  struct Sequence {
    NgramIndex texts;
    std::array<DraftRecord, kKinds> records{
        DraftRecord(0.6), DraftRecord(0.3), DraftRecord(0.5), DraftRecord(0.6)};
    size_t kind = 0;     // of the last guess
    bool trial = false;  // the next one is made to learn from
  };

  int room(int decoding) const;
  int length(const Sequence& sequence, size_t kind, int decoding) const;

  int most_;
  bool always_;
  std::unique_ptr<DraftModel> model_;
  StepCost cost_;
  double draft_seconds_ = 0;  // of one token of the model's
  std::unordered_map<SequenceId, Sequence> sequences_;
};

}  // namespace quince
