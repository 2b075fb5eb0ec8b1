#include "engine/speculation/draft_model.h"

#include <algorithm>
#include <utility>

#include <mlx/ops.h>
#include <mlx/transforms.h>

namespace quince {

namespace mx = mlx::core;

namespace {

// Of a prompt, in one call: the sequences that decode wait for it.
constexpr size_t kMostRead = 256;

}  // namespace

DraftModel::DraftModel(std::unique_ptr<Model> model, CacheOptions cache)
    : model_(std::move(model)), options_(std::move(cache)) {}

void DraftModel::forget(SequenceId id) {
  sequences_.erase(id);
}

// Takes out of the cache what is not in tokens, and reads tokens until at most kMostRead are left.
// False: more are.
bool DraftModel::read(Sequence& sequence, std::span<const int32_t> tokens) {
  if (!sequence.cache) {
    sequence.cache = model_->make_cache(options_);
  }
  std::vector<int32_t>& fed = sequence.fed;
  // The last token is always fed anew: its logits are wanted.
  const auto most = static_cast<int64_t>(std::min(fed.size(), tokens.size() - 1));
  const auto same = std::mismatch(fed.begin(), fed.begin() + most, tokens.begin()).first;
  const auto kept = static_cast<size_t>(same - fed.begin());
  if (kept < fed.size() && !sequence.cache->trim(static_cast<int64_t>(fed.size() - kept))) {
    sequence.cache->clear();
    fed.clear();
  }
  fed.resize(std::min(fed.size(), kept));
  if (tokens.size() - fed.size() <= kMostRead) {
    return true;
  }
  const auto piece = tokens.subspan(fed.size(), kMostRead);
  mx::eval(model_->forward(
      {mx::array(piece.begin(), {static_cast<int>(kMostRead)}, mx::int32),
       {{sequence.cache.get(), static_cast<int>(kMostRead)}},
       {}}));
  fed.insert(fed.end(), piece.begin(), piece.end());
  return tokens.size() - fed.size() <= kMostRead;
}

// The likeliest token behind each one's rows.
std::vector<int32_t> DraftModel::step(
    const std::vector<Sequence*>& sequences, const std::vector<std::vector<int32_t>>& rows) {
  std::vector<int32_t> ids;
  std::vector<Segment> segments;
  std::vector<int> last;
  for (size_t i = 0; i < sequences.size(); ++i) {
    ids.insert(ids.end(), rows[i].begin(), rows[i].end());
    segments.push_back({sequences[i]->cache.get(), static_cast<int>(rows[i].size())});
    last.push_back(static_cast<int>(ids.size()) - 1);
  }
  const mx::array tokens(ids.begin(), {static_cast<int>(ids.size())}, mx::int32);
  mx::array best = mx::astype(
      mx::argmax(model_->forward({tokens, std::move(segments), std::move(last)}), -1), mx::int32);
  mx::eval(best);
  for (size_t i = 0; i < sequences.size(); ++i) {
    std::vector<int32_t>& fed = sequences[i]->fed;
    fed.insert(fed.end(), rows[i].begin(), rows[i].end());
  }
  return {best.data<int32_t>(), best.data<int32_t>() + sequences.size()};
}

void DraftModel::guess(std::span<Ask> asks) {
  std::vector<Sequence*> active;
  std::vector<Ask*> theirs;
  std::vector<std::vector<int32_t>> rows;
  for (Ask& ask : asks) {
    Sequence& sequence = sequences_[ask.id];
    if (read(sequence, ask.tokens)) {
      active.push_back(&sequence);
      theirs.push_back(&ask);
      const auto left = ask.tokens.subspan(sequence.fed.size());
      rows.emplace_back(left.begin(), left.end());
    }
  }
  while (!active.empty()) {
    const std::vector<int32_t> next = step(active, rows);
    std::vector<Sequence*> on;
    std::vector<Ask*> theirs_on;
    rows.clear();
    for (size_t i = 0; i < active.size(); ++i) {
      theirs[i]->guess.push_back(next[i]);
      if (std::ssize(theirs[i]->guess) < theirs[i]->most) {
        on.push_back(active[i]);
        theirs_on.push_back(theirs[i]);
        rows.push_back({next[i]});
      }
    }
    active = std::move(on);
    theirs = std::move(theirs_on);
  }
}

}  // namespace quince
