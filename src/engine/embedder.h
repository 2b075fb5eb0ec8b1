// Runs the texts of embedding jobs through the model, a batch at a time: short ones together, long
// ones in pieces. Engine thread only.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "cache/cache.h"
#include "engine/embedding.h"
#include "models/model.h"

namespace quince {

class Embedder {
 public:
  Embedder(Model& model, CacheOptions cache) : model_(model), cache_(cache) {}

  void add(std::shared_ptr<EmbeddingJob> job);
  bool idle() const {
    return jobs_.empty();
  }
  // One batch of at most so many tokens; waits for it. Returns how many jobs have ended.
  int step(int most_tokens);
  int end_all(const std::exception_ptr& error);  // how many

 private:
  struct Text {
    std::unique_ptr<Cache> cache;  // while it is being computed
    size_t done = 0;               // tokens
    std::vector<double> sum;       // of the states that count
  };
  struct Job {
    std::shared_ptr<EmbeddingJob> job;
    std::vector<Text> texts;
    size_t ended = 0;  // texts
    std::exception_ptr error;
  };
  struct Piece {  // of a text, in a batch
    Job* job;
    size_t text;
    int tokens;
    int rows;  // whose states are wanted
  };

  std::vector<Piece> choose(int most_tokens);
  void run(const std::vector<Piece>& pieces);
  static std::vector<std::vector<float>> vectors(const Job& job);

  Model& model_;
  CacheOptions cache_;
  std::deque<Job> jobs_;
};

}  // namespace quince
