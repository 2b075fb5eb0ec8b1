// How long a model may think before it must answer: when its reasoning has had so many tokens, what
// ends reasoning is put behind it as if the model had written it. Plain data, and its bookkeeping
// for one sequence; one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace quince {

struct ReasoningBudget {
  int tokens = 0;       // of reasoning, at most
  bool inside = false;  // the prompt ended in it
  std::string begin;    // what stands around it; an answer that does not begin with this has none
  std::string end;
  std::vector<int32_t> closing;                 // is put there
  std::function<std::string(int32_t)> text_of;  // of a token, special or not; any thread
};

class ReasoningWatch {
 public:
  explicit ReasoningWatch(ReasoningBudget budget)
      : budget_(std::move(budget)), state_(budget_.inside ? State::inside : State::before) {}

  void take(int32_t token);  // the answer's next one
  bool due() const {         // closing must come next
    return state_ == State::inside && count_ >= budget_.tokens;
  }
  const std::vector<int32_t>& closing() const {
    return budget_.closing;
  }
  void close() {  // it comes
    state_ = State::over;
  }
  bool over() const {
    return state_ == State::over;
  }

 private:
  enum class State { before, inside, over };

  ReasoningBudget budget_;
  State state_;
  int count_ = 0;
  std::string tail_;  // text in which begin, or end, may have begun
};

}  // namespace quince
