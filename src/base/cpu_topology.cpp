#include "base/cpu_topology.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace quince {

namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// The group's own quota in processors, 0 when it has none.
double group_quota(const fs::path& group) {
  double quota = 0;
  double period = 0;
  if (std::istringstream v2(first_line(group / "cpu.max")); v2 >> quota >> period) {
    return period > 0 ? quota / period : 0;
  }
  std::istringstream v1_quota(first_line(group / "cpu.cfs_quota_us"));
  std::istringstream v1_period(first_line(group / "cpu.cfs_period_us"));
  if (v1_quota >> quota && v1_period >> period && quota > 0 && period > 0) {
    return quota / period;
  }
  return 0;
}

// Smallest quota from the group up to the mount point.
double tightest_quota(const fs::path& mount, fs::path group) {
  double tightest = 0;
  while (true) {
    double quota = group_quota(mount / group.relative_path());
    if (quota > 0 && (tightest == 0 || quota < tightest)) {
      tightest = quota;
    }
    if (!group.has_relative_path()) {
      return tightest;
    }
    group = group.parent_path();
  }
}

// Intel hybrid processors list their performance cores; elsewhere a core's capacity tells.
std::vector<int> performance_only(const fs::path& root, const std::vector<int>& cpus) {
  std::vector<int> kept;
  std::vector<int> listed = parse_cpu_list(first_line(root / "sys/devices/cpu_core/cpus"));
  if (!listed.empty()) {
    std::set<int> performance(listed.begin(), listed.end());
    std::copy_if(cpus.begin(), cpus.end(), std::back_inserter(kept), [&](int cpu) {
      return performance.count(cpu) > 0;
    });
    return kept.empty() ? cpus : kept;
  }
  std::vector<int> capacity;
  int largest = 0;
  for (int cpu : cpus) {
    std::istringstream in(first_line(
        root / "sys/devices/system/cpu" / ("cpu" + std::to_string(cpu)) / "cpu_capacity"));
    int value = 0;
    in >> value;
    capacity.push_back(value);
    largest = std::max(largest, value);
  }
  for (size_t i = 0; i < cpus.size(); ++i) {
    if (capacity[i] * 10 >= largest * 7) {  // the prime and the large cores, not the small ones
      kept.push_back(cpus[i]);
    }
  }
  return kept;
}

}  // namespace

std::vector<int> parse_cpu_list(const std::string& text) {
  std::vector<int> cpus;
  std::istringstream in(text);
  std::string part;
  while (std::getline(in, part, ',')) {
    int first = 0;
    int last = 0;
    char dash = 0;
    std::istringstream range(part);
    if (!(range >> first) || first < 0) {
      continue;
    }
    if (!(range >> dash >> last)) {
      last = first;
    }
    for (int cpu = first; cpu <= last && cpu - first < 4096; ++cpu) {
      cpus.push_back(cpu);
    }
  }
  return cpus;
}

int performance_cores_of(const fs::path& root, const std::vector<int>& allowed) {
  std::set<std::string> cores;
  for (int cpu : performance_only(root, allowed)) {
    std::string name = std::to_string(cpu);
    std::string siblings = first_line(
        root / "sys/devices/system/cpu" / ("cpu" + name) / "topology/thread_siblings_list");
    cores.insert(siblings.empty() ? "cpu" + name : siblings);
  }
  return std::max<int>(1, static_cast<int>(cores.size()));
}

int cgroup_cpu_limit(const fs::path& root) {
  // Lines "0::/path" (v2) and "4:cpu,cpuacct:/path" (v1).
  std::ifstream in(root / "proc/self/cgroup");
  double tightest = 0;
  std::string line;
  while (std::getline(in, line)) {
    size_t first = line.find(':');
    size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    fs::path mount = root / "sys/fs/cgroup";
    if (controllers.find(",cpu,") != std::string::npos) {
      mount /= "cpu";
    } else if (controllers != ",,") {
      continue;
    }
    double quota = tightest_quota(mount, line.substr(second + 1));
    if (quota > 0 && (tightest == 0 || quota < tightest)) {
      tightest = quota;
    }
  }
  return tightest > 0 ? std::max(1, static_cast<int>(std::lround(tightest))) : 0;
}

int usable_performance_cores() {
#if defined(__APPLE__)
  int cores = 0;
  size_t size = sizeof(cores);
  if (sysctlbyname("hw.perflevel0.logicalcpu", &cores, &size, nullptr, 0) == 0 && cores > 0) {
    return cores;
  }
#elif defined(__linux__)
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof(mask), &mask) == 0) {
    std::vector<int> allowed;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &mask)) {
        allowed.push_back(cpu);
      }
    }
    int cores = performance_cores_of("/", allowed);
    int limit = cgroup_cpu_limit("/");
    return limit > 0 ? std::min(cores, limit) : cores;
  }
#endif
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace quince
