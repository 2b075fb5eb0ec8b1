// How many processor cores are worth computing on. Linux: asks the affinity mask, sysfs and the
// control group's quota; macOS: sysctl. Any thread.
#pragma once

#include <filesystem>
#include <vector>

namespace quince {

// Performance cores that this process may use: at least 1. Threads of one core count once;
// efficiency cores do not count when there are others; a control group's CPU quota is a limit.
int usable_performance_cores();

// The parts, over any root directory so that they can be tested. allowed: processor numbers.
int performance_cores_of(const std::filesystem::path& root, const std::vector<int>& allowed);
// Whole processors that the quota of the process's control group (v2, or v1's cpu controller) and
// of all groups above it grants; 0: no limit.
int cgroup_cpu_limit(const std::filesystem::path& root);
// "0-3,8" -> 0 1 2 3 8; malformed parts are skipped.
std::vector<int> parse_cpu_list(const std::string& text);

}  // namespace quince
