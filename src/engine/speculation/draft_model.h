// A small model that guesses what a larger one will say, greedily. Engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/scheduler.h"
#include "models/model.h"

namespace quince {

class DraftModel {
 public:
  struct Ask {
    SequenceId id = 0;
    std::span<const int32_t> tokens;  // all that are known
    int most = 0;                     // tokens to guess, at least 1
    std::vector<int32_t> guess;       // what came out; nothing while it is still reading the prompt
  };

  DraftModel(std::unique_ptr<Model> model, CacheOptions cache);

  const ModelInfo& info() const {
    return model_->info();
  }
  // Advances the asked sequences together.
  void guess(std::span<Ask> asks);
  void forget(SequenceId id);

 private:
  struct Sequence {
    std::unique_ptr<Cache> cache;
    std::vector<int32_t> fed;  // the tokens in it
  };

  bool read(Sequence& sequence, std::span<const int32_t> tokens);
  std::vector<int32_t> step(
      const std::vector<Sequence*>& sequences, const std::vector<std::vector<int32_t>>& rows);

  std::unique_ptr<Model> model_;
  CacheOptions options_;
  std::unordered_map<SequenceId, Sequence> sequences_;
};

}  // namespace quince
