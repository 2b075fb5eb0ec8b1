#include "engine/embedder.h"

#include <algorithm>

#include <mlx/array.h>
#include <mlx/transforms.h>

#include "base/error.h"
#include "engine/engine.h"

namespace quince {

namespace mx = mlx::core;

void Embedder::add(std::shared_ptr<EmbeddingJob> job) {
  Job added;
  added.texts.resize(job->inputs().size());
  added.job = std::move(job);
  jobs_.push_back(std::move(added));
}

// In the order in which they came, as many as fit.
std::vector<Embedder::Piece> Embedder::choose(int most_tokens) {
  std::vector<Piece> pieces;
  int room = most_tokens;
  for (Job& job : jobs_) {
    if (job.error || job.job->cancelled()) {
      continue;
    }
    for (size_t i = job.ended; i < job.texts.size() && room > 0; ++i) {
      const std::vector<int32_t>& ids = job.job->inputs()[i];
      const size_t left = ids.size() - job.texts[i].done;
      const int tokens = static_cast<int>(std::min<size_t>(left, static_cast<size_t>(room)));
      const bool last = static_cast<size_t>(tokens) == left;
      const bool mean = job.job->pooling() == Pooling::mean;
      pieces.push_back({&job, i, tokens, mean ? tokens : last ? 1 : 0});
      room -= tokens;
    }
  }
  return pieces;
}

void Embedder::run(const std::vector<Piece>& pieces) {
  std::vector<int32_t> tokens;
  std::vector<Segment> segments;
  std::vector<int> wanted;
  for (const Piece& piece : pieces) {
    Text& text = piece.job->texts[piece.text];
    const std::vector<int32_t>& ids = piece.job->job->inputs()[piece.text];
    if (!text.cache) {
      CacheOptions options = cache_;
      options.expected_length = static_cast<int>(ids.size());
      text.cache = model_.make_cache(options);
    }
    const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(text.done);
    tokens.insert(tokens.end(), begin, begin + piece.tokens);
    segments.push_back({text.cache.get(), piece.tokens});
    for (int row = piece.rows; row > 0; --row) {
      wanted.push_back(static_cast<int>(tokens.size()) - row);
    }
  }
  Batch batch{
      mx::array(tokens.begin(), {static_cast<int>(tokens.size())}, mx::int32),
      std::move(segments),
      std::move(wanted)};
  batch.states = true;
  mx::array states = model_.forward(batch);
  mx::eval(states);
  const auto width = static_cast<size_t>(states.shape(1));
  const float* row = states.data<float>();
  for (const Piece& piece : pieces) {
    Text& text = piece.job->texts[piece.text];
    text.sum.resize(width);
    for (int r = 0; r < piece.rows; ++r, row += width) {
      std::transform(row, row + width, text.sum.begin(), text.sum.begin(), std::plus<>());
    }
    text.done += static_cast<size_t>(piece.tokens);
    if (text.done == piece.job->job->inputs()[piece.text].size()) {
      text.cache.reset();
      ++piece.job->ended;  // texts end in their order
    }
  }
}

std::vector<std::vector<float>> Embedder::vectors(const Job& job) {
  std::vector<std::vector<float>> out;
  for (const Text& text : job.texts) {
    const double parts = job.job->pooling() == Pooling::mean ? static_cast<double>(text.done) : 1.0;
    std::vector<float>& vector = out.emplace_back();
    for (const double sum : text.sum) {
      vector.push_back(static_cast<float>(sum / parts));
    }
  }
  return out;
}

int Embedder::step(int most_tokens) {
  const std::vector<Piece> pieces = choose(most_tokens);
  if (!pieces.empty()) {
    try {
      run(pieces);
    } catch (...) {
      for (const Piece& piece : pieces) {
        piece.job->error = std::current_exception();
      }
    }
  }
  int ended = 0;
  std::erase_if(jobs_, [&](Job& job) {
    const bool over = job.error || job.job->cancelled() || job.ended == job.texts.size();
    if (over) {
      ++ended;
      job.job->finish(job.error ? std::vector<std::vector<float>>() : vectors(job), job.error);
    }
    return over;
  });
  return ended;
}

int Embedder::end_all(const std::exception_ptr& error) {
  const auto count = static_cast<int>(jobs_.size());
  for (const Job& job : jobs_) {
    job.job->finish({}, error);
  }
  jobs_.clear();
  return count;
}

}  // namespace quince
