// Speed of matmul() on the shapes of small and middle-sized models, in packed bytes and in
// multiply-adds per second. The matrices of one run together are larger than the caches that matter
// (--mib, default 128), and follow each other as the layers of a model do.
//
//   matmul_bench [--threads=N] [--mib=N] [--benchmark_filter=Q4_1/576x1536/m:1/]
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "aligned.h"
#include "kernels/matmul.h"
#include "kernels/packed_memory.h"
#include "kernels/random_weights.h"

namespace quince::kernels {
namespace {

struct Options {
  int threads = ThreadPool::default_size();
  size_t mib = 128;
};

struct Problem {
  std::string format;
  TensorType type = TensorType::f32;
  int bits = 0;  // of an MLX triple with `type` scales in groups of 64
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t m = 0;
};

PackedMatrix make(const Problem& p, test::Random& random, ThreadPool& pool, PackArena& arena) {
  return PackedMatrix::pack(
      p.bits ? test::random_triple(p.bits, 64, p.type, p.rows, p.columns, random)
             : test::source_of(test::random_tensor("w", p.type, p.rows, p.columns, random)),
      pool,
      &arena);
}

void run(benchmark::State& state, const Problem& p, const Options& options) {
  ThreadPool pool(options.threads);
  test::Random random(1);
  PackArena arena;
  std::vector<PackedMatrix> matrices;
  size_t bytes = 0;
  while (bytes < options.mib << 20) {
    matrices.push_back(make(p, random, pool, arena));
    bytes += matrices.back().bytes();
  }
  const Aligned<float> x(static_cast<size_t>(p.m * p.columns));
  for (int64_t i = 0; i < p.m * p.columns; ++i) {
    x[static_cast<size_t>(i)] = random.uniform(-1.0f, 1.0f);
  }
  const Aligned<float> y(static_cast<size_t>(p.m * p.rows));
  const RowKind kind = row_kind(matrices[0], p.m);
  const Aligned<std::byte> prepared(prepared_bytes(kind, p.m, p.columns));
  const Rows rows{kind, p.m, p.columns, prepared.get()};
  for (auto _ : state) {
    pool.run([&](Team& team) {
      for (const PackedMatrix& w : matrices) {
        const int64_t first = p.m * team.rank() / team.size();
        const int64_t last = p.m * (team.rank() + 1) / team.size();
        prepare(rows, x.get(), p.columns, first, last);
        team.sync();
        matmul(team, w, rows, y.get(), p.rows, Store::set);
        team.sync();
      }
    });
  }
  const auto count = static_cast<double>(matrices.size());
  const double flop = 2.0 * static_cast<double>(p.m * p.rows * p.columns) * count;
  state.counters["GB/s"] = benchmark::Counter(
      static_cast<double>(bytes) * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["TFLOP/s"] =
      benchmark::Counter(flop * 1e-12, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["us"] = benchmark::Counter(
      count * 1e-6, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

// Takes what starts with `name` out of the command line.
void take(int& argc, char** argv, const char* name, auto& value) {
  for (int i = 1; i < argc; ++i) {
    const size_t length = std::strlen(name);
    if (std::strncmp(argv[i], name, length) == 0) {
      value = std::atoi(argv[i] + length);
      std::move(argv + i + 1, argv + argc, argv + i);
      --argc;
      return;
    }
  }
}

void register_all(const Options& options) {
  const std::vector<std::pair<int64_t, int64_t>> shapes{
      {1536, 576},
      {576, 1536},
      {576, 576},
      {192, 576},
      {960, 576},
      {3072, 576},
      {2048, 640},
      {640, 2048},
      {262144, 640},
      {4096, 4096},
      {11008, 4096},
      {4096, 11008}};
  std::vector<Problem> formats{
      {"MLX2", TensorType::bf16, 2},
      {"MLX3", TensorType::bf16, 3},
      {"MLX4", TensorType::bf16, 4},
      {"MLX8", TensorType::bf16, 8}};
  for (const TensorType type :
       {TensorType::q4_0,
        TensorType::q4_1,
        TensorType::q5_0,
        TensorType::q8_0,
        TensorType::q2_k,
        TensorType::q3_k,
        TensorType::q4_k,
        TensorType::q5_k,
        TensorType::q6_k,
        TensorType::f16,
        TensorType::bf16,
        TensorType::f32}) {
    formats.push_back({std::string(info(type).name), type});
  }
  for (Problem problem : formats) {
    for (const auto& [rows, columns] : shapes) {
      const int64_t step = problem.bits ? 64 : info(problem.type).block;
      if (columns % step != 0) {
        continue;
      }
      for (const int64_t m : {1, 2, 4, 8, 12, 16, 32, 64, 128, 512}) {
        problem.rows = rows;
        problem.columns = columns;
        problem.m = m;
        const std::string name = problem.format + "/" + std::to_string(rows) + "x" +
                                 std::to_string(columns) + "/m:" + std::to_string(m);
        benchmark::RegisterBenchmark(
            name.c_str(),
            [problem, options](benchmark::State& state) { run(state, problem, options); })
            ->UseRealTime()
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
}

}  // namespace
}  // namespace quince::kernels

int main(int argc, char** argv) {
  quince::kernels::Options options;
  quince::kernels::take(argc, argv, "--threads=", options.threads);
  quince::kernels::take(argc, argv, "--mib=", options.mib);
  benchmark::Initialize(&argc, argv);
  quince::kernels::register_all(options);
  benchmark::RunSpecifiedBenchmarks();
}
