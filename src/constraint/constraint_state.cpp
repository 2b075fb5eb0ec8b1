#include "constraint/constraint_state.h"

#include <algorithm>
#include <ctime>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"

namespace quince {

namespace {

// More processor time than this for one position, several times in a row, is too much. What is
// bounded already, the lexing of one mask, takes up to 30 ms.
constexpr double kMostSeconds = 0.06;
constexpr int kMostSlow = 3;

double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

ConstraintWorkers::ConstraintWorkers(int threads) {
  for (int i = 0; i < std::max(1, threads); ++i) {
    threads_.emplace_back([this] { run(); });
  }
}

ConstraintWorkers::~ConstraintWorkers() {
  {
    const std::scoped_lock lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void ConstraintWorkers::add(std::shared_ptr<ConstraintState> state) {
  const std::scoped_lock lock(mutex_);
  waiting_.push_back(std::move(state));
  changed_.notify_one();
}

void ConstraintWorkers::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closed_ || !waiting_.empty(); });
    if (waiting_.empty()) {
      return;
    }
    std::shared_ptr<ConstraintState> state = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    state->follow();
    state.reset();
    lock.lock();
  }
}

ConstraintState::ConstraintState(
    std::shared_ptr<const Constraint> constraint, ConstraintWorkers& workers, Options options)
    : constraint_(std::move(constraint)),
      workers_(workers),
      options_(std::move(options)),
      matcher_(constraint_->begin()) {
  if (!options_.clock) {
    options_.clock = thread_seconds;
  }
}

std::shared_ptr<ConstraintState> ConstraintState::start(
    std::shared_ptr<const Constraint> constraint, ConstraintWorkers& workers, Options options) {
  std::shared_ptr<ConstraintState> state(
      new ConstraintState(std::move(constraint), workers, std::move(options)));
  std::unique_lock lock(state->mutex_);
  state->schedule(lock);
  return state;
}

void ConstraintState::schedule(std::unique_lock<std::mutex>& lock) {
  if (!std::exchange(working_, true)) {
    lock.unlock();
    workers_.add(shared_from_this());
  }
}

bool ConstraintState::is_stop(Token token) const {
  return std::find(options_.stop_tokens.begin(), options_.stop_tokens.end(), token) !=
         options_.stop_tokens.end();
}

ConstraintState::Next ConstraintState::next(int64_t position) {
  std::unique_lock lock(mutex_);
  const auto at = static_cast<size_t>(position);
  changed_.wait(lock, [&] { return at < tokens_.size() || complete_ || error_ || bits_; });
  if (at < tokens_.size()) {
    return {tokens_[at], false, nullptr};
  }
  if (complete_) {
    return {std::nullopt, true, nullptr};
  }
  if (error_) {
    throw UserError("the answer cannot go on under its constraint: {}", *error_);
  }
  if (at > tokens_.size()) {
    throw std::logic_error("[ConstraintState] a token before this one is not decided");
  }
  return {std::nullopt, false, bits_};
}

void ConstraintState::accept(int64_t position, Token token) {
  std::unique_lock lock(mutex_);
  if (complete_ || static_cast<size_t>(position) != tokens_.size()) {
    return;
  }
  if (is_stop(token)) {
    complete_ = true;
    return;
  }
  tokens_.push_back(token);
  bits_ = nullptr;
  schedule(lock);
}

std::vector<Token> ConstraintState::decided(int64_t position) const {
  const std::scoped_lock lock(mutex_);
  const auto from = std::min(static_cast<size_t>(position), tokens_.size());
  return {tokens_.begin() + static_cast<int64_t>(from), tokens_.end()};
}

bool ConstraintState::ended(int64_t position) const {
  const std::scoped_lock lock(mutex_);
  return complete_ && static_cast<size_t>(position) >= tokens_.size();
}

// Others in the batch wait for this answer's masks. Lexing is bounded where masks are made, but an
// ambiguous grammar can read what has been written in more and more ways.
void ConstraintState::check_effort() {
  slow_ = options_.clock() - started_ > kMostSeconds ? slow_ + 1 : 0;
  if (slow_ == kMostSlow) {
    throw std::runtime_error(fmt::format(
        "each token takes over {:.0f} ms to check, and others wait for it; a grammar that can read "
        "a text in many ways does that: write it so that there is one",
        kMostSeconds * 1000));
  }
}

void ConstraintState::follow() {
  try {
    started_ = options_.clock();
    while (follow_once()) {
    }
  } catch (const std::exception& e) {
    {
      const std::scoped_lock lock(mutex_);
      error_ = e.what();
      working_ = false;
      changed_.notify_all();
    }
    if (options_.failed) {
      options_.failed();
    }
  }
}

// Stop tokens are the answer's end here and nothing else, whatever the grammar says of them.
std::shared_ptr<const TokenBits> ConstraintState::make_bits(ConstraintMatcher::Place& place) {
  const int vocab = constraint_->vocab_size();
  auto bits = std::make_shared<TokenBits>((static_cast<size_t>(vocab) + 31) / 32);
  place = matcher_.mask(*bits);
  for (const Token token : options_.stop_tokens) {
    if (token >= 0 && token < vocab) {
      uint32_t& word = (*bits)[static_cast<size_t>(token) / 32];
      const uint32_t bit = uint32_t{1} << (token % 32);
      word = place.accepting ? word | bit : word & ~bit;
    }
  }
  return bits;
}

// False: nothing is left to do.
bool ConstraintState::follow_once() {
  std::vector<Token> fresh;
  {
    const std::scoped_lock lock(mutex_);
    fresh.assign(tokens_.begin() + static_cast<int64_t>(consumed_), tokens_.end());
  }
  ConstraintMatcher::Place place;
  std::vector<Token> forced;
  std::shared_ptr<const TokenBits> bits;
  if (!fresh.empty()) {
    place = matcher_.consume(fresh);
    consumed_ += fresh.size();
  }
  if (!place.complete && options_.jump) {
    forced = matcher_.forced();
    if (std::any_of(forced.begin(), forced.end(), [&](Token t) { return is_stop(t); })) {
      throw std::runtime_error("its only way on is a stop token");
    }
  }
  if (!place.complete && forced.empty()) {
    bits = make_bits(place);
    const bool none = std::all_of(bits->begin(), bits->end(), [](uint32_t w) { return w == 0; });
    if (none && !place.complete) {
      throw std::runtime_error("no token is left to choose from");
    }
  }
  if (forced.empty()) {
    check_effort();
  }
  const std::scoped_lock lock(mutex_);
  if (tokens_.size() > consumed_) {
    return true;  // cannot be before bits_ is there, but costs nothing
  }
  tokens_.insert(tokens_.end(), forced.begin(), forced.end());
  bits_ = std::move(bits);
  complete_ = complete_ || place.complete;
  if (!forced.empty()) {
    changed_.notify_all();
    return true;
  }
  working_ = false;
  changed_.notify_all();
  return false;
}

}  // namespace quince
