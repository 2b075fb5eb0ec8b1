// How much memory this machine has, how much of it is free, and how much this process has used.
// Plain questions to the operating system; any thread. Bytes everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace quince {

struct MemoryStatus {
  uint64_t total = 0;  // what this process may use at most: physical memory or a lower cgroup limit
  uint64_t physical = 0;
  uint64_t available = 0;  // could be allocated now without swapping, the cgroup limit included
  std::optional<uint64_t> cgroup_limit;  // Linux containers only
};

MemoryStatus memory_status();

// Resident set of this process now. 0 where the system does not tell.
uint64_t current_rss();
// Largest resident set of this process so far.
uint64_t peak_rss();
// Begins peak_rss() anew, from what is resident now. False where the system cannot (macOS).
bool reset_peak_rss();

// Keeps what this process has in memory now from being swapped out, and what comes later into the
// same places. Nothing: it is so; else why not, with the remedy.
std::optional<std::string> lock_memory();

namespace system_detail {

// Apart for tests. meminfo: text of /proc/meminfo; value of a key such as "MemTotal" in bytes.
std::optional<uint64_t> meminfo_bytes(std::string_view meminfo, std::string_view key);

// A limit and what is used of it, found by walking from this process's group up to the root.
// proc_self_cgroup: text of /proc/self/cgroup; mount: "/sys/fs/cgroup". The tightest limit wins.
struct CgroupMemory {
  uint64_t limit = 0;
  uint64_t used = 0;  // page cache that can be given back is not counted
};
std::optional<CgroupMemory> cgroup_memory(
    std::string_view proc_self_cgroup, const std::filesystem::path& mount);

}  // namespace system_detail
}  // namespace quince
