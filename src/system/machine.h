// What this machine is, in words and in numbers of cores: for reports, never for choosing kernels
// (kernels/ asks the CPU itself).
#pragma once

#include <cstdint>
#include <string>

namespace quince {

struct Machine {
  std::string cpu;  // "Intel(R) Xeon(R) Processor", "Apple M3 Max"; "unknown CPU" when nobody says
  int cores = 1;    // logical cores that this process may run on
  int performance_cores = 1;      // of them, the fast ones (all, where there is one kind)
  uint64_t last_level_cache = 0;  // bytes of the largest cache; 0: unknown
  std::string system;             // "Linux 6.1.0 x86_64"
};

Machine machine();

}  // namespace quince
