#include "measure/serve_bench.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <mutex>
#include <random>
#include <thread>

#include "base/error.h"

namespace quince {

namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

struct PlannedRequest {
  double due = 0;  // seconds after the start; 0 when a client sends as soon as it can
  std::vector<int32_t> prompt;
  int output = 0;
};

int draw(std::mt19937_64& random, const LengthRange& range) {
  return std::uniform_int_distribution<int>(range.low, range.high)(random);
}

std::vector<PlannedRequest> plan(const ServeLoad& load, int vocabulary) {
  std::mt19937_64 random(load.seed);
  std::uniform_int_distribution<int32_t> token(0, vocabulary - 1);
  std::vector<int32_t> prefix(static_cast<size_t>(load.shared_prefix));
  std::generate(prefix.begin(), prefix.end(), [&] { return token(random); });
  std::vector<PlannedRequest> requests(static_cast<size_t>(load.requests));
  double due = 0;
  for (PlannedRequest& request : requests) {
    request.output = draw(random, load.output);
    request.prompt.resize(static_cast<size_t>(draw(random, load.prompt)));
    std::generate(request.prompt.begin(), request.prompt.end(), [&] { return token(random); });
    const size_t shared = std::min(prefix.size(), request.prompt.size());
    std::copy_n(prefix.begin(), shared, request.prompt.begin());
    if (load.rate > 0) {
      due += std::exponential_distribution<double>(load.rate)(random);
      request.due = due;
    }
  }
  return requests;
}

// What the clients have in common.
class LoadRun {
 public:
  LoadRun(Engine& engine, const ServeLoad& load)
      : engine_(engine),
        load_(load),
        requests_(plan(load, engine.info().vocab_size)),
        start_(Clock::now()) {}

  ServeResult run() {
    std::vector<std::thread> clients;
    for (int i = 0; i < std::min(load_.clients, load_.requests); ++i) {
      clients.emplace_back([this] { client(); });
    }
    try {
      while (finished_.load() < load_.requests) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        if (load_.check) {
          load_.check();
        }
      }
    } catch (...) {
      stopped_ = true;
      join(clients);
      throw;
    }
    join(clients);
    result_.seconds = std::max(0.0, seconds(start_, last_));  // 0 when all have failed
    result_.first_token = percentiles(std::move(first_tokens_));
    result_.gap = percentiles(std::move(gaps_));
    result_.request = percentiles(std::move(whole_));
    result_.engine = engine_.stats();
    return result_;
  }

 private:
  static void join(std::vector<std::thread>& clients) {
    for (std::thread& client : clients) {
      client.join();
    }
  }

  void client() {
    while (!stopped_) {
      const int index = next_.fetch_add(1);
      if (index >= load_.requests) {
        return;
      }
      try {
        send(requests_[static_cast<size_t>(index)]);
      } catch (const std::exception& error) {
        std::lock_guard lock(mutex_);
        if (++result_.failed == 1) {
          result_.first_error = error.what();
        }
      }
      ++finished_;
    }
  }

  void send(const PlannedRequest& request) {
    auto due = Clock::now();
    if (load_.rate > 0) {
      due = start_ +
            std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(request.due));
      while (Clock::now() < due && !stopped_) {
        std::this_thread::sleep_until(std::min(due, Clock::now() + std::chrono::milliseconds(50)));
      }
    }
    SamplingParams params;
    params.temperature = 0.0f;
    params.max_tokens = request.output;
    TokenStream stream = engine_.submit(request.prompt, params);
    std::vector<double> times;  // seconds after it was due
    while (!stopped_ && stream.next()) {
      times.push_back(seconds(due, Clock::now()));
    }
    std::lock_guard lock(mutex_);
    last_ = std::max(last_, Clock::now());
    const GenerationStats stats = stream.stats();
    ++result_.completed;
    result_.prompt_tokens += stats.prompt_tokens;
    result_.cached_tokens += stats.cached_tokens;
    result_.output_tokens += static_cast<int64_t>(times.size());
    if (times.empty()) {
      return;
    }
    first_tokens_.push_back(times.front());
    whole_.push_back(times.back());
    for (size_t i = 1; i < times.size(); ++i) {
      gaps_.push_back(times[i] - times[i - 1]);
    }
  }

  Engine& engine_;
  const ServeLoad& load_;
  const std::vector<PlannedRequest> requests_;
  const Clock::time_point start_;
  std::atomic<int> next_{0};
  std::atomic<int> finished_{0};
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;  // guards what follows
  ServeResult result_;
  Clock::time_point last_;
  std::vector<double> first_tokens_;
  std::vector<double> gaps_;
  std::vector<double> whole_;
};

}  // namespace

// Nearest rank.
Percentiles percentiles(std::vector<double> values) {
  if (values.empty()) {
    return {};
  }
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
    return values[std::max<size_t>(rank, 1) - 1];
  };
  return {at(0.5), at(0.9), at(0.99), values.back()};
}

ServeResult run_load(Engine& engine, const ServeLoad& load) {
  const int context = engine.context_length();
  const int64_t longest = static_cast<int64_t>(load.prompt.high) + load.output.high;
  if (context > 0 && longest > context) {
    throw UserError(
        "prompts of {} and answers of {} tokens need a context of {}, the model has {}",
        load.prompt.high,
        load.output.high,
        longest,
        context);
  }
  return LoadRun(engine, load).run();
}

}  // namespace quince
