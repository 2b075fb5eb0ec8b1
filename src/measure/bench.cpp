#include "measure/bench.h"

#include <algorithm>
#include <chrono>

#include <mlx/mlx.h>

#include "base/error.h"
#include "engine/sampling/sampler.h"

namespace quince {

namespace mx = mlx::core;

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

std::string BenchTest::name() const {
  std::string name = fmt::format("{}{}", kind == Kind::prompt ? "pp" : "tg", tokens);
  if (batch > 1) {
    name += fmt::format(" b{}", batch);
  }
  if (depth > 0) {
    name += fmt::format(" d{}", depth);
  }
  return name;
}

Spread spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  size_t middle = values.size() / 2;
  double median =
      values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {values.front(), median, values.back()};
}

// The caches of one test, which later repetitions rewind rather than fill anew.
struct Bench::Sequences {
  std::vector<std::unique_ptr<Cache>> caches;
};

Bench::Bench(Model& model, BenchOptions options)
    : model_(model), options_(std::move(options)), random_(options_.seed) {}

Bench::~Bench() = default;

namespace {

// xorshift64*: token ids need no better randomness.
int32_t next_token(uint64_t& state, int vocabulary) {
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return static_cast<int32_t>(
      (state * 0x2545F4914F6CDD1DULL >> 33) % static_cast<uint64_t>(vocabulary));
}

mx::array random_tokens(uint64_t& state, int count, int vocabulary) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::generate(ids.begin(), ids.end(), [&] { return next_token(state, vocabulary); });
  return mx::array(ids.data(), {count}, mx::int32);
}

}  // namespace

// Appends random tokens in chunks; the logits of the last one are computed, as for a real prompt.
void Bench::fill(Cache& cache, int tokens) {
  for (int done = 0; done < tokens;) {
    int rows = std::min(options_.prefill_chunk, tokens - done);
    done += rows;
    Batch batch{
        random_tokens(random_, rows, model_.info().vocab_size),
        {{&cache, rows}},
        done == tokens ? std::vector<int>{rows - 1} : std::vector<int>{}};
    mx::eval(model_.forward(batch));
    if (options_.check) {
      options_.check();
    }
  }
}

double Bench::run_prompt(const BenchTest& test, Sequences& sequences) {
  auto start = Clock::now();
  fill(*sequences.caches.front(), test.tokens);
  return seconds_since(start);
}

double Bench::run_decode(const BenchTest& test, Sequences& sequences, int steps) {
  std::vector<Segment> segments;
  std::vector<int> logit_rows;
  for (int i = 0; i < test.batch; i++) {
    segments.push_back({sequences.caches[static_cast<size_t>(i)].get(), 1});
    logit_rows.push_back(i);
  }
  SamplingParams greedy;
  greedy.temperature = 0.0f;
  std::vector<std::unique_ptr<Sampler>> samplers;
  std::vector<SampleRow> rows;
  for (int i = 0; i < test.batch; i++) {
    samplers.push_back(make_sampler(greedy, {}, mx::default_device()));
    rows.push_back({samplers.back().get(), nullptr});
  }
  mx::array tokens = random_tokens(random_, test.batch, model_.info().vocab_size);
  mx::eval(tokens);
  auto start = Clock::now();
  for (int step = 0; step < steps; step++) {
    // As the engine does it: this step is started before the last one's tokens are read.
    mx::array logits = model_.forward({tokens, segments, logit_rows});
    mx::array next = sample_rows(logits, rows, options_.pool).ids;
    mx::async_eval(next);
    mx::eval(tokens);
    tokens = next;
    if (options_.check) {
      options_.check();
    }
  }
  mx::eval(tokens);
  return seconds_since(start);
}

void check_fits(const BenchTest& test, const ModelInfo& model) {
  const int64_t needed = int64_t{test.depth} + test.tokens;
  if (model.context_length > 0 && needed > model.context_length) {
    throw UserError(
        "{}: needs {} tokens of context, the model has {}",
        test.name(),
        needed,
        model.context_length);
  }
}

BenchResult Bench::run(const BenchTest& test) {
  const int needed = test.depth + test.tokens;
  if (!options_.cache.max_size) {
    check_fits(test, model_.info());
  }
  Sequences sequences;
  CacheOptions cache = options_.cache;
  cache.expected_length = needed;
  for (int i = 0; i < test.batch; i++) {
    sequences.caches.push_back(model_.make_cache(cache));
    fill(*sequences.caches.back(), test.depth);
  }
  auto rewind = [&] {
    for (auto& one : sequences.caches) {
      int64_t surplus = one->length() - test.depth;
      if (surplus > 0 && !one->trim(surplus)) {
        one->clear();
        fill(*one, test.depth);
      }
    }
  };
  auto once = [&](int steps) {
    return test.kind == BenchTest::Kind::prompt ? run_prompt(test, sequences)
                                                : run_decode(test, sequences, steps);
  };
  once(std::min(test.tokens, 8));  // warm-up: pages, thread pool, compiled kernels
  BenchResult result;
  result.test = test;
  for (int repetition = 0; repetition < options_.repetitions; repetition++) {
    rewind();
    double seconds = once(test.tokens);
    result.runs.push_back(test.tokens * test.batch / std::max(seconds, 1e-9));
  }
  result.tokens_per_second = spread(result.runs);
  if (test.kind == BenchTest::Kind::decode) {
    uint64_t weights =
        options_.weight_bytes_read > 0 ? options_.weight_bytes_read : model_.info().weight_bytes;
    uint64_t kv = 0;
    for (const auto& one : sequences.caches) {
      // bytes() is what is allocated for the whole length; half of the new part is there on
      // average.
      double used = one->length() > 0
                        ? (test.depth + test.tokens / 2.0) / static_cast<double>(one->length())
                        : 0;
      kv += static_cast<uint64_t>(static_cast<double>(one->bytes()) * std::min(used, 1.0));
    }
    result.bytes_per_step = weights + kv;
    double steps = result.tokens_per_second.median / test.batch;
    result.gb_per_second = static_cast<double>(result.bytes_per_step) * steps / 1e9;
  }
  return result;
}

std::vector<BenchTest> bench_tests(
    const std::vector<int>& prompts,
    const std::vector<int>& generations,
    const std::vector<int>& batches,
    const std::vector<int>& depths) {
  std::vector<BenchTest> tests;
  for (int depth : depths) {
    for (int tokens : prompts) {
      if (tokens > 0) {
        tests.push_back({BenchTest::Kind::prompt, tokens, 1, depth});
      }
    }
    for (int tokens : generations) {
      for (int batch : batches) {
        if (tokens > 0) {
          tests.push_back({BenchTest::Kind::decode, tokens, batch, depth});
        }
      }
    }
  }
  return tests;
}

}  // namespace quince
