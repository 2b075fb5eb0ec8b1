// The composed path is what GPUs run, so its cost is held down by counting: primitives in the graph
// of a step beside those of mlx-lm's graph for the same model (golden/count_primitives.py), and
// bytes copied by the cache.
#include <iostream>
#include <map>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <mlx/graph_utils.h>
#include <mlx/primitives.h>

#include "cache/composed_cache.h"
#include "models/tiny_model.h"
#include "nn/activation.h"

namespace quince::test {
namespace {

namespace mx = mlx::core;

int count(const mx::array& out) {
  std::ostringstream text;
  mx::export_to_dot(text, out);
  const std::string dot = text.str();
  int n = 0;
  for (size_t at = dot.find("shape=rectangle"); at != std::string::npos;
       at = dot.find("shape=rectangle", at + 1)) {
    ++n;
  }
  return n;
}

mx::array leaf(const mx::Shape& shape, mx::Dtype type = mx::float32) {
  mx::array x = mx::zeros(shape, type);
  x.eval();
  return x;
}

int number(const Golden& golden, const char* key, int otherwise) {
  const auto* value = golden.config.if_contains(key);
  return value && value->is_int64() ? static_cast<int>(value->get_int64()) : otherwise;
}

// Primitives that the CPU backend's fallbacks of the fast operations add, and those that a GPU's
// compiled activation saves, for one forward of `rows` after `done` tokens.
int surplus(const Golden& golden, bool quantized, int rows, int done) {
  const std::string type(golden.config.at("model_type").as_string());
  const bool gemma = type == "gemma3_text";
  const int hidden = number(golden, "hidden_size", 0);
  const int heads = number(golden, "num_attention_heads", 0);
  const int kv_heads = number(golden, "num_key_value_heads", heads);
  const int head_dim = number(golden, "head_dim", hidden / heads);
  const int layers = number(golden, "num_hidden_layers", 0);
  const auto norm = [](const mx::Shape& shape) {
    const int width = shape.back();
    return count(mx::fast::rms_norm(leaf(shape), leaf({width}), 1e-6f)) - 1;
  };
  const auto rope = [&](int n) {
    const mx::array x = leaf({1, n, rows, head_dim});
    return count(mx::fast::rope(
               x, head_dim, false, std::nullopt, 1.0f, mx::array(3), leaf({head_dim / 2}))) -
           1;
  };
  const auto attention = [&](int window) {
    const int visible = window == 0 ? done + rows : std::min(done, window - 1) + rows;
    const bool array = rows > 1 && window != 0 && visible > window;
    std::optional<mx::array> mask;
    if (array) {
      mask = leaf({rows, visible}, mx::bool_);
    }
    const mx::array kv = leaf({1, kv_heads, visible, head_dim});
    return count(mx::fast::scaled_dot_product_attention(
               leaf({1, heads, rows, head_dim}),
               kv,
               kv,
               1.0f,
               rows > 1 && !array ? "causal" : "",
               mask)) -
           1;
  };
  const mx::array gate = leaf({rows, number(golden, "intermediate_size", 0)});
  const mx::array up = leaf(gate.shape());
  const auto activation =
      make_gated_activation(gemma ? Activation::gelu_tanh : Activation::silu, false);
  int sum = norm({rows, hidden});
  if (quantized) {  // the embedding's rows
    const mx::array groups = leaf({rows, hidden / 32});
    const mx::array codes = leaf({rows, hidden / 8}, mx::uint32);
    sum += count(mx::dequantize(codes, groups, groups, 32, 4)) - 1;
  }
  for (int i = 0; i < layers; ++i) {
    const bool local = gemma && (i + 1) % number(golden, "sliding_window_pattern", 6) != 0;
    sum += (gemma ? 4 : 2) * norm({rows, hidden});
    if (gemma || type == "qwen3") {
      sum += norm({1, heads, rows, head_dim}) + norm({1, kv_heads, rows, head_dim});
    }
    sum +=
        rope(heads) + rope(kv_heads) + attention(local ? number(golden, "sliding_window", 0) : 0);
    sum += count(activation(gate, up)) - 1;
  }
  return sum;
}

struct Counts {
  int cpu;
  int gpu;
};

Counts measure(const Golden& golden, bool quantized, int rows) {
  constexpr int kDone = 20;
  const auto model = load_model(
      quantized ? quantized_files(golden, 4, 32) : golden.files(), load_options(KernelSet::mlx));
  const auto cache = model->make_cache({});
  append(*model, *cache, {golden.tokens.begin(), golden.tokens.begin() + kDone});
  std::vector<int> wanted(static_cast<size_t>(rows));
  std::iota(wanted.begin(), wanted.end(), 0);
  const mx::array logits = model->forward(
      {mx::array(golden.tokens.begin(), {rows}, mx::int32), {{cache.get(), rows}}, wanted});
  const int cpu = count(logits);
  return {cpu, cpu - surplus(golden, quantized, rows, kDone)};
}

TEST(Graph, NoMorePrimitivesThanMlxLm) {
  const boost::json::object table = read_json(golden_folder() / "primitives.json");
  int rows_of_table = 0;
  for (const auto& [name, kinds] : table) {
    if (!kinds.is_object()) {
      continue;
    }
    const Golden golden = load_golden(std::string(name));
    for (const auto& [kind, tests] : kinds.as_object()) {
      for (const auto& [test, theirs] : tests.as_object()) {
        const int rows = test == "decode" ? 1 : 20;
        const Counts ours = measure(golden, kind == "4-bit", rows);
        const auto cpu = theirs.as_object().at("cpu").as_int64();
        const auto gpu = theirs.as_object().at("gpu").as_int64();
        const std::string what = fmt::format(
            "{} {} {}", std::string_view(name), std::string_view(kind), std::string_view(test));
        EXPECT_LE(ours.cpu, cpu) << what << ", as the CPU builds it";
        EXPECT_LE(ours.gpu, gpu) << what << ", as a GPU builds it";
        EXPECT_GT(ours.gpu, 20) << what;
        std::cout << fmt::format(
            "{:32} cpu {:4} of {:4}   gpu {:4} of {:4}\n", what, ours.cpu, cpu, ours.gpu, gpu);
        ++rows_of_table;
      }
    }
  }
  EXPECT_GE(rows_of_table, 20);
}

// What a step costs beside the attention itself, which must read all that is visible.
struct StepCost {
  std::map<std::string, int> primitives;  // by name
  size_t copied = 0;                      // bytes
  bool operator==(const StepCost&) const = default;
};

void add_cost(const mx::array& a, std::set<uintptr_t>& seen, StepCost& cost) {
  if (!a.has_primitive() || !seen.insert(a.id()).second) {
    return;
  }
  const std::string name = a.primitive().name();
  ++cost.primitives[name];
  // An update goes into memory that is there: see the test below.
  if (name == "SliceUpdate" || name == "DynamicSliceUpdate") {
    cost.copied += a.inputs().at(1).nbytes();
  }
  for (const char* copies : {"Concatenate", "Copy", "Contiguous", "Gather", "GatherAxis", "Pad"}) {
    cost.copied += name == copies ? a.nbytes() : 0;
  }
  for (const mx::array& input : a.inputs()) {
    add_cost(input, seen, cost);
  }
}

struct Kind {
  const char* model;
  std::optional<int> max_size;
};

CacheOptions options_of(const Kind& kind) {
  CacheOptions options;
  options.max_size = kind.max_size;
  return options;
}

mx::array step(Model& model, const std::vector<std::unique_ptr<Cache>>& caches) {
  std::vector<Segment> segments;
  std::vector<int> rows;
  for (const auto& cache : caches) {
    segments.push_back({cache.get(), 1});
    rows.push_back(static_cast<int>(rows.size()));
  }
  const std::vector<int32_t> tokens(caches.size(), 5);
  return model.forward(
      {mx::array(tokens.begin(), {static_cast<int>(tokens.size())}, mx::int32), segments, rows});
}

TEST(Graph, StepsCopyNoMoreOfALongContext) {
  for (const Kind& kind : {Kind{"llama", {}}, Kind{"gemma3", {}}, Kind{"llama", 300}}) {
    SCOPED_TRACE(kind.model);
    const Golden golden = load_golden(kind.model);
    const auto model = load_model(golden.files(), load_options(KernelSet::mlx));
    for (const size_t sequences : {1u, 3u}) {
      std::vector<StepCost> costs;
      // Not where memory has to be got anew, every 256 tokens; the last is behind the rotation.
      for (const int done : {20, 100, 400}) {
        std::vector<std::unique_ptr<Cache>> caches;
        for (size_t i = 0; i < sequences; ++i) {
          caches.push_back(model->make_cache(options_of(kind)));
          for (int fed = 0; fed < done;) {
            const int some = std::min(done - fed, 90);
            append(*model, *caches[i], std::vector<int32_t>(static_cast<size_t>(some), 7));
            fed += some;
          }
          step(*model, caches).eval();
        }
        StepCost cost;
        std::set<uintptr_t> seen;
        add_cost(step(*model, caches), seen, cost);
        EXPECT_GT(cost.copied, 0u);
        costs.push_back(cost);
      }
      EXPECT_EQ(costs[0].copied, costs[1].copied) << sequences;
      EXPECT_EQ(costs[0].primitives, costs[1].primitives) << sequences;
      EXPECT_LE(costs[2].copied, costs[0].copied) << sequences;
      if (!kind.max_size) {
        EXPECT_EQ(costs[2].primitives, costs[0].primitives) << sequences;
      }
    }
  }
}

TEST(Graph, StepsWriteIntoTheMemoryThatIsThere) {
  const Golden golden = load_golden("llama");
  const auto model = load_model(golden.files(), load_options(KernelSet::mlx));
  std::vector<std::unique_ptr<Cache>> caches;
  caches.push_back(model->make_cache({}));
  append(*model, *caches[0], golden.tokens);
  // Whoever holds the array keeps it from being written into.
  const auto keys = [&] {
    return static_cast<ComposedCache&>(*caches[0]).layer(0).planes()[0].data<float>();
  };
  step(*model, caches).eval();
  const float* before = keys();
  for (int i = 0; i < 20; ++i) {
    step(*model, caches).eval();
    EXPECT_EQ(keys(), before) << i;
  }
}

}  // namespace
}  // namespace quince::test
