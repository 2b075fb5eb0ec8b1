#include "cli/compute_flags.h"

#include <gtest/gtest.h>

namespace quince::cli {
namespace {

TEST(ComputeFlags, DeterministicReachesTheWeightsAndTheEngine) {
  for (const bool wanted : {false, true}) {
    ComputeFlags flags;
    flags.device = "cpu";
    flags.deterministic = wanted;
    const Compute compute = plan_compute(flags);
    EXPECT_EQ(compute.load.batch_invariant, wanted);
    EXPECT_TRUE(compute.notes.empty());
    EngineOptions options;
    set_engine(compute, options);
    EXPECT_EQ(options.deterministic, wanted);
    EXPECT_EQ(options.pool, compute.load.pool);
  }
}

TEST(ComputeFlags, DeterministicOnMlxKernelsIsSaidToCost) {
  ComputeFlags flags;
  flags.device = "cpu";
  flags.kernels = "mlx";
  flags.deterministic = true;
  const Compute compute = plan_compute(flags);
  ASSERT_EQ(compute.notes.size(), 1u);
  EXPECT_NE(compute.notes[0].find("one request at a time"), std::string::npos);
}

}  // namespace
}  // namespace quince::cli
