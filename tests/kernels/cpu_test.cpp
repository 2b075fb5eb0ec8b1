#include "kernels/cpu.h"

#include <vector>

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace quince::kernels {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Cpu, ScalarIsAlwaysThereAndFirst) {
  ASSERT_FALSE(available_paths().empty());
  EXPECT_EQ(available_paths().front(), CpuPath::scalar);
}

TEST(Cpu, UnsetOrEmptyTakesTheBest) {
  const std::vector<CpuPath> has{CpuPath::scalar, CpuPath::avx2, CpuPath::avx512};
  EXPECT_EQ(choose_path(nullptr, has), CpuPath::avx512);
  EXPECT_EQ(choose_path("", has), CpuPath::avx512);
}

TEST(Cpu, ForcedByName) {
  const std::vector<CpuPath> has{CpuPath::scalar, CpuPath::avx2, CpuPath::avx512};
  EXPECT_EQ(choose_path("avx2", has), CpuPath::avx2);
  EXPECT_EQ(choose_path("scalar", has), CpuPath::scalar);
  const std::vector<CpuPath> arm{CpuPath::scalar, CpuPath::neon, CpuPath::i8mm};
  EXPECT_EQ(choose_path("dotprod", arm), CpuPath::neon);
  EXPECT_EQ(choose_path("neon", arm), CpuPath::neon);
}

TEST(Cpu, RefusesWhatTheMachineLacks) {
  const std::vector<CpuPath> has{CpuPath::scalar, CpuPath::avx2};
  EXPECT_THAT(
      [&] { choose_path("amx", has); },
      ThrowsMessage<UserError>(AllOf(HasSubstr("QUINCE_CPU=amx"), HasSubstr("scalar, avx2"))));
}

TEST(Cpu, RefusesUnknownNames) {
  const std::vector<CpuPath> has{CpuPath::scalar};
  EXPECT_THAT(
      [&] { choose_path("sse9", has); },
      ThrowsMessage<UserError>(AllOf(HasSubstr("sse9"), HasSubstr("no such"))));
}

TEST(Cpu, EveryPathHasAName) {
  for (const CpuPath path : available_paths()) {
    EXPECT_EQ(choose_path(std::string(name(path)).c_str(), available_paths()), path);
  }
}

}  // namespace
}  // namespace quince::kernels
