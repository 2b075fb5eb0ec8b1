// Speed of attend_rows(): one layer's attention for the last rows of a prompt, in the pieces that
// a step cuts it into, on one thread. Queries and results lie as they do in a step.
//
//   attention_bench [--benchmark_filter=f16/3x3x64/512]
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "aligned.h"
#include "kernels/attention.h"
#include "kernels/random_weights.h"

namespace quince::kernels {
namespace {

struct Problem {
  KvType type;
  int kv_heads;
  int group;
  int head_dim;
  int context;  // positions, of which
  int rows;     // the last are computed
};

void run(benchmark::State& state, const Problem& p) {
  const AttentionOps& ops = attention_ops(detect());
  const int blocks = (p.context + kKvBlock - 1) / kKvBlock;
  const KvLayout layout{1, p.kv_heads, p.head_dim, p.type, p.type, blocks};
  const Aligned<std::byte> memory(layout.slab_bytes());
  std::vector<KvBlock> list;
  for (int b = 0; b < blocks; ++b) {
    list.push_back({memory.get() + layout.part_bytes() * static_cast<size_t>(b), b * kKvBlock});
  }
  const int heads = p.kv_heads * p.group;
  const int64_t width = int64_t{heads + 2 * p.kv_heads} * p.head_dim;
  const Aligned<float> qkv(static_cast<size_t>(p.context * width));
  const Aligned<float> out(static_cast<size_t>(p.rows * heads * p.head_dim));
  test::Random random(1);
  for (int64_t i = 0; i < p.context * width; ++i) {
    qkv[static_cast<size_t>(i)] = random.uniform(-1.0f, 1.0f);
  }
  std::vector<AttentionHead> all;
  for (int h = 0; h < p.kv_heads; ++h) {
    AttentionHead head;
    head.blocks = list.data();
    head.block_count = blocks;
    head.key_offset = layout.key_offset(0, h);
    head.value_offset = layout.value_offset(0, h);
    head.key_type = head.value_type = p.type;
    head.head_dim = p.head_dim;
    head.value_width = layout.value_width();
    head.group = p.group;
    all.push_back(head);
    for (int b = 0; b < blocks; ++b) {
      const int first = b * kKvBlock;
      const float* k = qkv.get() + first * width + int64_t{heads + h} * p.head_dim;
      ops.store(
          head,
          list[static_cast<size_t>(b)].data + head.key_offset,
          list[static_cast<size_t>(b)].data + head.value_offset,
          0,
          p.context - first < kKvBlock ? p.context - first : kKvBlock,
          k,
          k + int64_t{p.kv_heads} * p.head_dim,
          width);
    }
  }
  const int at_once = rows_at_once(p.group, p.rows);
  const Aligned<std::byte> workspace(ops.rows_workspace(all.front(), at_once));
  for (auto _ : state) {
    for (int begin = p.rows / at_once * at_once; begin >= 0; begin -= at_once) {
      const int count = begin + at_once < p.rows ? at_once : p.rows - begin;
      for (int h = 0; h < p.kv_heads && count > 0; ++h) {
        const int64_t position = p.context - p.rows + begin;
        AttentionHead head = all[static_cast<size_t>(h)];
        head.block_count = static_cast<int>((position + count - 1) / kKvBlock + 1);
        const int64_t column = int64_t{h} * p.group * p.head_dim;
        ops.attend_rows(
            head,
            qkv.get() + position * width + column,
            width,
            count,
            position,
            out.get() + int64_t{begin} * heads * p.head_dim + column,
            int64_t{heads} * p.head_dim,
            workspace.get());
      }
    }
    benchmark::ClobberMemory();
  }
  // Of scores and weighted values, causal.
  const double pairs = p.rows * (p.context - p.rows + (p.rows + 1) / 2.0);
  state.counters["TFLOP/s"] = benchmark::Counter(
      4e-12 * pairs * heads * p.head_dim, benchmark::Counter::kIsIterationInvariantRate);
}

void register_all() {
  for (const KvType type : {KvType::f16, KvType::bf16, KvType::q8}) {
    const std::string name = type == KvType::f16 ? "f16" : type == KvType::bf16 ? "bf16" : "q8";
    for (const auto& [kv_heads, group, dim] :
         {std::tuple{3, 3, 64}, std::tuple{1, 4, 256}, std::tuple{8, 4, 128}}) {
      for (const auto& [context, rows] :
           {std::pair{128, 128}, std::pair{512, 512}, std::pair{4096, 512}, std::pair{4096, 32}}) {
        const Problem problem{type, kv_heads, group, dim, context, rows};
        const std::string full =
            fmt::format("{}/{}x{}x{}/{}/{}", name, kv_heads, group, dim, context, rows);
        benchmark::RegisterBenchmark(full.c_str(), [problem](benchmark::State& state) {
          run(state, problem);
        })->Unit(benchmark::kMicrosecond);
      }
    }
  }
}

}  // namespace
}  // namespace quince::kernels

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  quince::kernels::register_all();
  benchmark::RunSpecifiedBenchmarks();
}
