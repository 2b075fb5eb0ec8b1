#include "cache/kv_layer.h"

#include <functional>
#include <memory>
#include <numeric>

#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include "base/error.h"
#include "cache/composed_cache.h"

namespace quince {
namespace {

namespace mx = mlx::core;

// Rows whose numbers are their positions: [1, 2, n, 4] filled with first, first + 1, ...
mx::array rows_at(int64_t first, int n) {
  const mx::array at = mx::reshape(
      mx::arange(static_cast<double>(first), static_cast<double>(first + n)), {1, 1, n, 1});
  mx::array rows = mx::contiguous(mx::broadcast_to(at, {1, 2, n, 4}));
  rows.eval();
  return rows;
}

// Positions that each of the appended rows attends to, by the mask and the rows returned.
std::vector<std::vector<int64_t>> visible(
    const mx::array& keys, const AttentionMask& mask, int rows) {
  mx::array k = mx::contiguous(mx::slice(keys, {0, 0, 0, 0}, {1, 1, keys.shape(2), 1}));
  k.eval();
  const int count = keys.shape(2);
  std::vector<std::vector<int64_t>> out(static_cast<size_t>(rows));
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < count; ++j) {
      const bool seen = mask.array ? mask.array->data<bool>()[i * count + j]
                                   : mask.mode.empty() || j <= count - rows + i;
      if (seen) {
        out[static_cast<size_t>(i)].push_back(static_cast<int64_t>(k.data<float>()[j]));
      }
    }
    std::sort(out[static_cast<size_t>(i)].begin(), out[static_cast<size_t>(i)].end());
  }
  return out;
}

using Rule = std::function<bool(int64_t query, int64_t key)>;

// Appends chunks and checks the visible positions of every row against the rule.
void check_chunks(KvLayer& layer, const std::vector<int>& chunks, const Rule& rule) {
  for (const int n : chunks) {
    const int64_t first = layer.length();
    const AttentionMask mask = layer.mask(n);
    const KvPlanes planes = layer.update({rows_at(first, n), rows_at(first, n)});
    ASSERT_EQ(planes[0].shape(), planes[1].shape());
    const auto seen = visible(planes[0], mask, n);
    for (int i = 0; i < n; ++i) {
      std::vector<int64_t> want;
      for (int64_t key = 0; key <= first + i; ++key) {
        if (rule(first + i, key)) {
          want.push_back(key);
        }
      }
      ASSERT_EQ(seen[static_cast<size_t>(i)], want)
          << "position " << first + i << ", chunk of " << n;
    }
  }
}

const std::vector<std::vector<int>> kFeedings = {
    {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
    {20, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
    {3, 5, 1, 1, 7, 2, 1, 1, 1, 30, 1, 1, 2, 2, 1},
    {7, 1, 1, 6, 1, 1},
    {8, 8, 8, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 8, 1},
    {300, 1, 300, 1, 1, 250, 1},
};

TEST(LinearKv, SeesAllOrTheWindow) {
  for (const int window : {0, 1, 2, 7, 8, 40}) {
    for (const auto& feeding : kFeedings) {
      LinearKv layer(window, 0);
      check_chunks(
          layer, feeding, [window](int64_t q, int64_t k) { return window == 0 || k > q - window; });
    }
  }
}

TEST(RingKv, SeesTheKeptAndTheLatest) {
  for (const auto& [size, keep] :
       {std::pair(8, 0),
        std::pair(8, 4),
        std::pair(8, 7),
        std::pair(1, 0),
        std::pair(5, 1),
        std::pair(300, 4)}) {
    for (const auto& feeding : kFeedings) {
      RingKv layer(size, keep);
      check_chunks(layer, feeding, [size = size, keep = keep](int64_t q, int64_t k) {
        return k < keep || k > q - (size - keep);
      });
      if (HasFatalFailure()) {
        FAIL() << "ring of " << size << " keeping " << keep;
      }
    }
  }
}

TEST(RingKv, HoldsNoMoreThanItsSizeWhenDecoding) {
  RingKv layer(8, 4);
  for (int i = 0; i < 50; ++i) {
    layer.update({rows_at(i, 1), rows_at(i, 1)});
  }
  EXPECT_EQ(layer.bytes(), 2u * 8 * 2 * 4 * sizeof(float));
}

TEST(LinearKv, WindowHoldsABoundedNumberOfRows) {
  LinearKv layer(8, 0);
  size_t most = 0;
  for (int i = 0; i < 3000; ++i) {
    const KvPlanes planes = layer.update({rows_at(i, 1), rows_at(i, 1)});
    mx::eval(planes);
    most = std::max(most, layer.bytes());
  }
  EXPECT_LE(most, 2u * 512 * 2 * 4 * sizeof(float));
}

TEST(KvLayer, TrimmedTokensAreForgotten) {
  const Rule all = [](int64_t, int64_t) { return true; };
  const Rule window = [](int64_t q, int64_t k) { return k > q - 6; };
  const std::pair<std::shared_ptr<KvLayer>, Rule> layers[] = {
      {std::make_shared<LinearKv>(0, 0), all},
      {std::make_shared<LinearKv>(6, 0), window},
      {std::make_shared<RingKv>(64, 4), all}};
  for (const auto& [layer, rule] : layers) {
    check_chunks(*layer, {10, 1, 1}, rule);
    ASSERT_TRUE(layer->can_trim(7));
    layer->trim(7);
    EXPECT_EQ(layer->length(), 5);
    check_chunks(*layer, {1, 4, 1}, rule);
    ASSERT_TRUE(layer->can_trim(11));
    layer->trim(11);
    check_chunks(*layer, {2, 1}, rule);
    EXPECT_FALSE(layer->can_trim(4));
    EXPECT_FALSE(layer->can_trim(-1));
    layer->clear();
    EXPECT_EQ(layer->bytes(), 0u);
    check_chunks(*layer, {3, 1}, rule);
  }
}

TEST(KvLayer, TrimAfterALongChunkOfARing) {
  RingKv layer(8, 2);  // the first chunk is held whole until the next row comes
  const Rule rule = [](int64_t q, int64_t k) { return k < 2 || k > q - 6; };
  check_chunks(layer, {20}, rule);
  ASSERT_TRUE(layer.can_trim(5));
  layer.trim(5);
  check_chunks(layer, {1, 1}, rule);
  EXPECT_FALSE(layer.can_trim(1));

  RingKv shorter(8, 2);
  check_chunks(shorter, {20}, rule);
  shorter.trim(16);
  check_chunks(shorter, {1, 1, 1, 1, 1, 1, 1, 3, 1}, rule);
}

TEST(LinearKv, AWindowCanAlwaysGoBackALittle) {
  LinearKv layer(8, 0);
  const Rule window = [](int64_t q, int64_t k) { return k > q - 8; };
  check_chunks(layer, {40}, window);
  for (int round = 0; round < 40; ++round) {
    check_chunks(layer, {80, 1, 1, 1}, window);
    ASSERT_TRUE(layer.can_trim(LinearKv::kTrimRoom)) << layer.length();
    layer.trim(LinearKv::kTrimRoom);
  }
  EXPECT_FALSE(layer.can_trim(layer.length() - 1));
  EXPECT_TRUE(layer.can_trim(0));
}

// A step writes its row into the buffer that is there: nothing that grows with the context is
// copied.
TEST(KvLayer, StepsWriteInPlace) {
  const std::pair<std::shared_ptr<KvLayer>, int> layers[] = {
      {std::make_shared<LinearKv>(0, 1000), 700},
      {std::make_shared<LinearKv>(200, 0), 700},
      {std::make_shared<RingKv>(256, 4), 700}};
  for (const auto& [layer, steps] : layers) {
    const void* buffer = nullptr;
    int moves = 0;
    for (int i = 0; i < steps; ++i) {
      {
        const KvPlanes planes = layer->update({rows_at(i, 1), rows_at(i, 1)});
        const mx::array out =
            mx::fast::scaled_dot_product_attention(rows_at(i, 1), planes[0], planes[1], 1.0f);
        mx::eval(out);
      }
      const void* now = layer->planes()[0].data<void>();
      moves += now != buffer;
      buffer = now;
    }
    EXPECT_LE(moves, 3) << steps << " steps";
  }
}

// The same when step n + 1 is built before step n has run, as the engine does.
TEST(KvLayer, StepsInFlightWriteInPlace) {
  LinearKv layer(0, 1000);
  const auto step = [&](int i) {
    const KvPlanes planes = layer.update({rows_at(i, 1), rows_at(i, 1)});
    mx::array out =
        mx::fast::scaled_dot_product_attention(rows_at(i, 1), planes[0], planes[1], 1.0f);
    mx::async_eval(out);
    return out;
  };
  mx::array last = step(0);
  last.eval();
  const void* buffer = layer.planes()[0].data<void>();
  for (int i = 1; i < 500; ++i) {
    mx::array next = step(i);
    last.eval();
    last = next;
  }
  last.eval();
  EXPECT_EQ(layer.planes()[0].data<void>(), buffer);
}

TEST(LinearKv, GrowsByAShareNotByASteadyAmount) {
  LinearKv layer(0, 0);
  int moves = 0;
  size_t bytes = 0;
  for (int i = 0; i < 20000; i += 10) {
    const KvPlanes planes = layer.update({rows_at(i, 10), rows_at(i, 10)});
    mx::eval(planes);
    moves += layer.bytes() != bytes;
    bytes = layer.bytes();
  }
  EXPECT_LE(moves, 24);  // about log(20000 / 256) / log(1.25)
  EXPECT_LE(bytes, 2u * 26000 * 2 * 4 * sizeof(float));
}

TEST(ComposedCache, OptionsDecideTheLayers) {
  const CacheOptions plain;
  ComposedCache cache({0, 8}, plain, mx::float32, 2, 4);
  EXPECT_EQ(cache.length(), 0);
  EXPECT_EQ(cache.bytes(), 0u);
  CacheOptions rotating;
  rotating.max_size = 4;
  EXPECT_THROW(ComposedCache({0}, rotating, mx::float32, 2, 4), UserError);  // keep is 4
  rotating.keep = 3;
  ComposedCache ring({0}, rotating, mx::float32, 2, 4);
  for (int i = 0; i < 9; ++i) {
    ring.layer(0).update({rows_at(i, 1), rows_at(i, 1)});
  }
  EXPECT_EQ(ring.length(), 9);
  EXPECT_FALSE(ring.trim(1));
  EXPECT_EQ(ring.length(), 9);
  ring.clear();
  EXPECT_EQ(ring.length(), 0);
}

}  // namespace
}  // namespace quince
