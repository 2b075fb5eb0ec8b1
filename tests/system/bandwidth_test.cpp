#include "system/bandwidth.h"

#include <gtest/gtest.h>

#include <chrono>

namespace quince {
namespace {

TEST(Bandwidth, MeasuresWithinItsTime) {
  ThreadPool pool(2);
  auto start = std::chrono::steady_clock::now();
  Bandwidth result = measure_read_bandwidth(pool, {.buffer = size_t{64} << 20, .seconds = 0.1});
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_GE(result.passes, 1);
  EXPECT_EQ(result.threads, 2);
  EXPECT_EQ(result.buffer, size_t{64} << 20);
  // Any machine reads more than a tenth of a gigabyte and less than ten thousand a second.
  EXPECT_GT(result.gb_per_second, 0.1);
  EXPECT_LT(result.gb_per_second, 10000.0);
  EXPECT_LT(seconds, 10.0);
}

TEST(Bandwidth, OddSizesAreCutToPages) {
  ThreadPool pool(1);
  Bandwidth result = measure_read_bandwidth(pool, {.buffer = 10000, .seconds = 0.0});
  EXPECT_EQ(result.buffer, 8192u);
  EXPECT_EQ(result.passes, 1);
}

}  // namespace
}  // namespace quince
