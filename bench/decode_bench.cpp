// Speed of a model's forward passes, without an engine around them: prompt and greedy decode tok/s
// at several batch sizes and depths. Prints one line a measurement.
//   decode_bench MODEL [threads] [mlx|native] [prompt|decode N BATCH DEPTH]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>

#include <mlx/mlx.h>

#include "base/error.h"
#include "models/model.h"
#include "weights/model_files.h"

namespace quince {
namespace {

namespace mx = mlx::core;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

mx::array some_tokens(int n, int vocab) {
  std::vector<int32_t> ids(static_cast<size_t>(n));
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<int32_t>((i * 7919 + 11) % static_cast<size_t>(std::min(vocab, 30000)));
  }
  return mx::array(ids.begin(), {n}, mx::int32);
}

// Feeds n tokens in one step, logits of the last.
void feed(Model& model, Cache& cache, int n) {
  mx::array logits =
      model.forward({some_tokens(n, model.info().vocab_size), {{&cache, n}}, {n - 1}});
  logits.eval();
}

void report(const char* what, int size, int batch, int depth, std::vector<double> rates) {
  std::sort(rates.begin(), rates.end());
  std::printf(
      "%-7s %5d  batch %3d  depth %5d  tok/s min %9.1f  median %9.1f  max %9.1f\n",
      what,
      size,
      batch,
      depth,
      rates.front(),
      rates[rates.size() / 2],
      rates.back());
  std::fflush(stdout);
}

void bench_prompt(Model& model, int n, int depth, int repeats) {
  std::vector<double> rates;
  for (int i = 0; i < repeats; ++i) {
    auto cache = model.make_cache({});
    if (depth > 0) {
      feed(model, *cache, depth);
    }
    const auto start = Clock::now();
    feed(model, *cache, n);
    rates.push_back(n / seconds_since(start));
  }
  report("prompt", n, 1, depth, rates);
}

// Step k + 1 is queued before the tokens of step k are read, as an engine does.
void bench_decode(Model& model, int n, int batch, int depth, int repeats) {
  std::vector<double> rates;
  for (int i = 0; i < repeats; ++i) {
    std::vector<std::unique_ptr<Cache>> caches;
    std::vector<Segment> segments;
    std::vector<int> rows(static_cast<size_t>(batch));
    std::iota(rows.begin(), rows.end(), 0);
    for (int b = 0; b < batch; ++b) {
      caches.push_back(model.make_cache({}));
      feed(model, *caches.back(), std::max(depth, 1));
      segments.push_back({caches.back().get(), 1});
    }
    mx::array tokens = some_tokens(batch, model.info().vocab_size);
    const auto start = Clock::now();
    for (int step = 0; step < n; ++step) {
      mx::array next =
          mx::astype(mx::argmax(model.forward({tokens, segments, rows}), -1), mx::int32);
      mx::async_eval(next);
      if (step > 0) {
        tokens.wait();
      }
      tokens = next;
    }
    tokens.wait();
    rates.push_back(n * batch / seconds_since(start));
  }
  report("decode", n, batch, depth, rates);
}

int run(int argc, char** argv) {
  try {
    if (argc < 2) {
      std::fprintf(
          stderr,
          "usage: decode_bench MODEL [threads] [mlx|native] [prompt|decode N BATCH DEPTH]\n");
      return 2;
    }
    LoadOptions options;
    const int threads = argc > 2 ? std::atoi(argv[2]) : ThreadPool::default_size();
    options.pool = std::make_shared<ThreadPool>(threads);
    const bool native = argc < 4 || std::string(argv[3]) == "native";
    options.kernels = native ? KernelSet::native : KernelSet::mlx;
    const auto start = Clock::now();
    auto model = load_model(open_model(argv[1]), options);
    std::printf(
        "loaded in %.2f s, %.1f MB of weights\n",
        seconds_since(start),
        static_cast<double>(model->info().weight_bytes) / 1e6);
    for (const std::string& line : model->info().notes) {
      std::printf("note: %s\n", line.c_str());
    }
    const int repeats = 5;
    if (argc > 7) {
      const int n = std::atoi(argv[5]);
      const int depth = std::atoi(argv[7]);
      if (std::string(argv[4]) == "prompt") {
        bench_prompt(*model, n, depth, repeats);
      } else {
        bench_decode(*model, n, std::atoi(argv[6]), depth, repeats);
      }
      return 0;
    }
    bench_prompt(*model, 512, 0, repeats);
    bench_prompt(*model, 128, 0, repeats);
    bench_decode(*model, 128, 1, 0, repeats);
    for (int batch : {4, 16}) {
      bench_decode(*model, 64, batch, 0, 3);
    }
    bench_decode(*model, 64, 1, 4096, 3);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "decode_bench: %s\n", error.what());
    return 1;
  }
}

}  // namespace
}  // namespace quince

int main(int argc, char** argv) {
  return quince::run(argc, argv);
}
