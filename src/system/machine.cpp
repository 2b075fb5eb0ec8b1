#include "system/machine.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <thread>

#include "base/cpu_topology.h"

#if defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(__linux__)
#include <sched.h>
#endif

namespace quince {

namespace {

std::string system_name() {
  utsname name{};
  if (uname(&name) != 0) {
    return "unknown system";
  }
  return std::string(name.sysname) + " " + name.release + " " + name.machine;
}

#if defined(__APPLE__)

template <typename T>
T sysctl_number(const char* key, T fallback) {
  T value{};
  size_t size = sizeof(value);
  return sysctlbyname(key, &value, &size, nullptr, 0) == 0 ? value : fallback;
}

void describe_cpu(Machine& machine) {
  char brand[256] = {};
  size_t size = sizeof(brand) - 1;
  if (sysctlbyname("machdep.cpu.brand_string", brand, &size, nullptr, 0) == 0) {
    machine.cpu = brand;
  }
  machine.cores = sysctl_number<int>("hw.logicalcpu", machine.cores);
  machine.last_level_cache = static_cast<uint64_t>(sysctl_number<int64_t>(
      "hw.perflevel0.l2cachesize", sysctl_number<int64_t>("hw.l2cachesize", 0)));
}

#else

std::string cpu_name() {
  // x86 says "model name"; several ARM kernels say nothing but a part number, or "Hardware".
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (!line.starts_with("model name") && !line.starts_with("Hardware")) {
      continue;
    }
    size_t colon = line.find(':');
    if (colon != std::string::npos && colon + 2 < line.size()) {
      return line.substr(colon + 2);
    }
  }
  return "unknown CPU";
}

uint64_t largest_cache() {
  uint64_t largest = 0;
  for (int index = 0; index < 8; index++) {
    std::ifstream in("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size");
    uint64_t size = 0;
    char unit = 0;
    if (!(in >> size)) {
      continue;
    }
    in >> unit;
    size *= unit == 'K' ? 1024 : unit == 'M' ? 1024 * 1024 : 1;
    largest = std::max(largest, size);
  }
  return largest;
}

void describe_cpu(Machine& machine) {
  machine.cpu = cpu_name();
#if defined(__linux__)
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
    machine.cores = std::max(1, CPU_COUNT(&allowed));
  }
#endif
  machine.last_level_cache = largest_cache();
}

#endif

}  // namespace

Machine machine() {
  Machine machine;
  machine.cpu = "unknown CPU";
  machine.cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  machine.system = system_name();
  describe_cpu(machine);
  machine.performance_cores = std::min(usable_performance_cores(), machine.cores);
  return machine;
}

}  // namespace quince
