// What choosing a token costs: 16 rows of 49,152 or 262,144 logits, one thread, per way of
// sampling.
#include <random>

#include <benchmark/benchmark.h>

#include "engine/sampling/cpu_sampler.h"

namespace quince {
namespace {

constexpr size_t kRows = 16;

// Like a language model's: most tokens far below a few good ones.
std::vector<std::vector<float>> make_rows(size_t vocabulary) {
  std::mt19937 random(1);
  std::normal_distribution<float> usual(0.0f, 2.5f);
  std::vector<std::vector<float>> made(kRows, std::vector<float>(vocabulary));
  for (auto& row : made) {
    for (float& x : row) {
      x = usual(random);
    }
    for (int i = 0; i < 20; ++i) {
      row[random() % vocabulary] = 10.0f + usual(random);
    }
  }
  return made;
}

SamplingParams plain() {
  SamplingParams params;
  params.temperature = 0.8f;
  params.top_k = 0;
  params.top_p = 1.0f;
  params.min_p = 0.0f;
  return params;
}

void sample(benchmark::State& state, const SamplingParams& params) {
  std::vector<CpuSampler> samplers;
  for (size_t i = 0; i < kRows; ++i) {
    samplers.emplace_back(params, i);
  }
  const auto rows = make_rows(static_cast<size_t>(state.range(0)));
  for (auto _ : state) {
    for (size_t i = 0; i < kRows; ++i) {
      benchmark::DoNotOptimize(samplers[i].sample(rows[i]));
    }
  }
}

template <class Change>
void add(const char* name, Change change) {
  SamplingParams params = plain();
  change(params);
  benchmark::RegisterBenchmark(name, [params](benchmark::State& state) { sample(state, params); })
      ->Unit(benchmark::kMicrosecond)
      ->Arg(49152)
      ->Arg(262144);
}

void add_all() {
  add("greedy", [](auto& p) { p.temperature = 0; });
  add("greedy_logprobs", [](auto& p) { p.temperature = 0, p.logprobs = true; });
  add("top_k_40", [](auto& p) { p.top_k = 40; });
  add("defaults", [](auto& p) { p = SamplingParams(); });
  add("temperature", [](auto&) {});
  add("top_p", [](auto& p) { p.top_p = 0.95f; });
  add("min_p", [](auto& p) { p.min_p = 0.05f; });
  add("mirostat_1", [](auto& p) { p.mirostat = 1; });
  add("mirostat_2", [](auto& p) { p.mirostat = 2; });
  add("mirostat_1_repetition", [](auto& p) { p.mirostat = 1, p.repetition_penalty = 1.1f; });
  add("mirostat_2_repetition", [](auto& p) { p.mirostat = 2, p.repetition_penalty = 1.1f; });
  add("defaults_repetition", [](auto& p) { p = SamplingParams(), p.repetition_penalty = 1.1f; });
}

}  // namespace
}  // namespace quince

int main(int argc, char** argv) {
  quince::add_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
