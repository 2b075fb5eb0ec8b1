// What sequences that decode feel of a long prompt that arrives beside them: the gaps between their
// tokens before, and while it is computed. One JSON object.
//   quince_prompt_gap MODEL [SEQUENCES 8] [PROMPT 2000] [THREADS 2]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <random>
#include <thread>

#include <fmt/format.h>

#include "base/error.h"
#include "engine/engine.h"
#include "weights/model_files.h"

namespace quince {
namespace {

using Clock = std::chrono::steady_clock;

struct Gap {
  Clock::time_point begin;
  Clock::time_point end;
  double ms() const {
    return std::chrono::duration<double, std::milli>(end - begin).count();
  }
};

std::vector<int32_t> random_tokens(std::mt19937& random, int n, int vocabulary) {
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(random() % static_cast<unsigned>(vocabulary));
  }
  return tokens;
}

int run(const char* path, int sequences, int prompt, int threads) {
  auto pool = std::make_shared<ThreadPool>(threads);
  EngineOptions options;
  options.pool = pool;
  options.context_length = prompt + 4096;
  Engine engine(
      [&] {
        LoadOptions load;
        load.kernels = KernelSet::native;
        load.pool = pool;
        return load_model(open_model(path), load);
      },
      options);
  std::mt19937 random(1);
  SamplingParams params;
  params.temperature = 0.0f;
  std::mutex mutex;
  std::vector<Gap> gaps;
  std::atomic<bool> stop = false;
  std::vector<std::thread> readers;
  for (int i = 0; i < sequences; ++i) {
    readers.emplace_back(
        [&, stream = engine.submit(random_tokens(random, 64, 30000), params)]() mutable {
          std::vector<Gap> own;
          Clock::time_point last;
          while (!stop && stream.next()) {
            const auto now = Clock::now();
            if (last != Clock::time_point()) {
              own.push_back({last, now});
            }
            last = now;
          }
          stream.cancel();
          const std::scoped_lock lock(mutex);
          gaps.insert(gaps.end(), own.begin(), own.end());
        });
  }
  const auto pause = std::chrono::milliseconds(1500);
  std::this_thread::sleep_for(pause);
  const auto begin = Clock::now();
  params.max_tokens = 1;
  TokenStream intruder = engine.submit(random_tokens(random, prompt, 30000), params);
  while (intruder.next()) {
  }
  const auto end = Clock::now();
  std::this_thread::sleep_for(pause);
  stop = true;
  for (std::thread& reader : readers) {
    reader.join();
  }
  // A chunk by itself, on the idle engine.
  const auto chunk_begin = Clock::now();
  TokenStream chunk = engine.submit(random_tokens(random, options.prefill_chunk, 30000), params);
  while (chunk.next()) {
  }
  const double chunk_ms =
      std::chrono::duration<double, std::milli>(Clock::now() - chunk_begin).count();
  std::vector<double> quiet;
  double worst = 0;
  for (const Gap& gap : gaps) {
    if (gap.end < begin) {
      quiet.push_back(gap.ms());
    } else if (gap.begin < end) {
      worst = std::max(worst, gap.ms());
    }
  }
  std::sort(quiet.begin(), quiet.end());
  const double median = quiet.empty() ? 0 : quiet[quiet.size() / 2];
  fmt::print(
      "{{\"sequences\": {}, \"prompt\": {}, \"median_gap_ms\": {:.2f}, \"worst_gap_ms\": {:.2f}, "
      "\"chunk_ms\": {:.2f}, \"bound_ms\": {:.2f}, \"prompt_seconds\": {:.3f}}}\n",
      sequences,
      prompt,
      median,
      worst,
      chunk_ms,
      2 * median + chunk_ms,
      std::chrono::duration<double>(end - begin).count());
  return 0;
}

}  // namespace
}  // namespace quince

int main(int argc, char** argv) {
  const auto number = [&](int i, int otherwise) {
    return argc > i ? std::atoi(argv[i]) : otherwise;
  };
  try {
    if (argc < 2) {
      throw quince::UserError("usage: quince_prompt_gap MODEL [SEQUENCES] [PROMPT] [THREADS]");
    }
    return quince::run(argv[1], number(2, 8), number(3, 2000), number(4, 2));
  } catch (const std::exception& error) {
    fmt::print(stderr, "quince_prompt_gap: {}\n", error.what());
    return 2;
  }
}
