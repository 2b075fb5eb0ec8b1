// For tests that run every kernel in each instruction set that this machine has.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "kernels/cpu.h"

namespace quince::kernels {

class EveryPath : public testing::TestWithParam<CpuPath> {};

inline std::string path_name(const testing::TestParamInfo<CpuPath>& info) {
  return std::string(name(info.param));
}

#define QUINCE_EVERY_PATH(Suite)                                             \
  INSTANTIATE_TEST_SUITE_P(                                                  \
      Cpu,                                                                   \
      Suite,                                                                 \
      testing::ValuesIn(available_paths().begin(), available_paths().end()), \
      path_name)

}  // namespace quince::kernels
