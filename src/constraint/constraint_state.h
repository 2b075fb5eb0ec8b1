// One answer under a constraint, beside the model's computation. Positions count the answer's
// tokens from 0.
//
// The tokens of an answer are decided in order: one by one by the sampler, or, where the grammar
// leaves one way only, several at once ahead of the model. A worker thread follows: it takes the
// tokens decided, decides those that are forced, and makes the mask for the next position. So while
// the model computes a step, the mask for that step's sampling is made, and whoever samples waits
// only for what is not ready yet. What is decided never changes: whether the engine runs forced
// tokens together, or one by one, makes no difference to the answer.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "constraint/constraint.h"

namespace quince {

class ConstraintState;

// Threads that follow answers. Destroyed after everything that waits for a state.
class ConstraintWorkers {
 public:
  explicit ConstraintWorkers(int threads = 1);
  ~ConstraintWorkers();
  ConstraintWorkers(const ConstraintWorkers&) = delete;
  ConstraintWorkers& operator=(const ConstraintWorkers&) = delete;

  void add(std::shared_ptr<ConstraintState> state);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<ConstraintState>> waiting_;
  bool closed_ = false;
  std::vector<std::thread> threads_;
};

// All members may be called from any thread.
class ConstraintState : public std::enable_shared_from_this<ConstraintState> {
 public:
  struct Options {
    std::vector<Token> stop_tokens = {};     // allowed where the answer may end, and nowhere else
    bool jump = true;                        // decide forced tokens ahead
    std::function<void()> failed = nullptr;  // called once, from the worker
    // Processor seconds of the calling thread; tests bring their own.
    std::function<double()> clock = nullptr;
  };

  // Begins to work at once. workers must outlive it.
  static std::shared_ptr<ConstraintState> start(
      std::shared_ptr<const Constraint> constraint, ConstraintWorkers& workers, Options options);

  struct Next {
    std::optional<Token> token;             // decided already
    bool ended = false;                     // the answer ends before this position
    std::shared_ptr<const TokenBits> bits;  // else: what may be chosen
  };
  // Waits for what may stand at position; all before it must be decided. Throws UserError when the
  // constraint failed there.
  Next next(int64_t position);
  // The sampler's choice; no effect where it is decided already. A stop token ends the answer.
  void accept(int64_t position, Token token);

  // What is decided from position on; never waits.
  std::vector<Token> decided(int64_t position) const;
  // Known to end before position; never waits.
  bool ended(int64_t position) const;

 private:
  friend class ConstraintWorkers;
  ConstraintState(
      std::shared_ptr<const Constraint> constraint, ConstraintWorkers& workers, Options options);
  void schedule(std::unique_lock<std::mutex>& lock);
  void follow();  // on a worker
  bool follow_once();
  void check_effort();
  bool is_stop(Token token) const;
  std::shared_ptr<const TokenBits> make_bits(ConstraintMatcher::Place& place);

  std::shared_ptr<const Constraint> constraint_;
  ConstraintWorkers& workers_;
  Options options_;
  ConstraintMatcher matcher_;  // the worker's
  size_t consumed_ = 0;        // the worker's
  double started_ = 0;         // the worker's: its clock then
  int slow_ = 0;               // the worker's: positions in a row that took too long

  mutable std::mutex mutex_;  // of all below: the sampler waits for the worker
  std::condition_variable changed_;
  std::vector<Token> tokens_;              // decided
  std::shared_ptr<const TokenBits> bits_;  // for position tokens_.size(); null: not ready
  bool complete_ = false;                  // the answer ends with tokens_
  std::optional<std::string> error_;       // at position tokens_.size()
  bool working_ = false;                   // a worker has it, or will
};

}  // namespace quince
