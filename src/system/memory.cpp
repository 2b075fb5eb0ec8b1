#include "system/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include <fmt/format.h>

#if defined(__APPLE__)
#include <mach/mach.h>
#include <sys/sysctl.h>
#endif

namespace quince {

namespace {

std::optional<uint64_t> parse_number(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) {
    text.remove_prefix(1);
  }
  uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) {
    return std::nullopt;
  }
  return value;
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace

namespace system_detail {

std::optional<uint64_t> meminfo_bytes(std::string_view meminfo, std::string_view key) {
  while (!meminfo.empty()) {
    size_t end = meminfo.find('\n');
    std::string_view line = meminfo.substr(0, end);
    meminfo.remove_prefix(end == std::string_view::npos ? meminfo.size() : end + 1);
    if (line.starts_with(key) && line.substr(key.size()).starts_with(":")) {
      auto kilobytes = parse_number(line.substr(key.size() + 1));
      return kilobytes ? std::optional(*kilobytes * 1024) : std::nullopt;
    }
  }
  return std::nullopt;
}

namespace {

struct CgroupFiles {
  const char* limit;
  const char* used;
  const char* cache_key;  // in memory.stat: file pages that can be reclaimed at once
};

// Version 1 writes a huge number and version 2 the word "max" where there is no limit.
constexpr uint64_t kNoLimit = uint64_t{1} << 60;

std::optional<CgroupMemory> tightest(
    const std::filesystem::path& root, std::string_view group, const CgroupFiles& files) {
  std::optional<CgroupMemory> best;
  std::filesystem::path relative = std::filesystem::path(group).relative_path();
  while (true) {
    std::filesystem::path folder = root / relative;
    auto limit = parse_number(read_text(folder / files.limit));
    if (limit && *limit < kNoLimit && (!best || *limit < best->limit)) {
      uint64_t used = parse_number(read_text(folder / files.used)).value_or(0);
      std::istringstream stat(read_text(folder / "memory.stat"));
      std::string key;
      uint64_t value = 0;
      while (stat >> key >> value) {
        if (key == files.cache_key) {
          used -= std::min(used, value);
        }
      }
      best = CgroupMemory{*limit, used};
    }
    if (relative.empty()) {
      return best;
    }
    relative = relative.parent_path();
  }
}

}  // namespace

std::optional<CgroupMemory> cgroup_memory(
    std::string_view proc_self_cgroup, const std::filesystem::path& mount) {
  std::optional<CgroupMemory> best;
  std::istringstream lines{std::string(proc_self_cgroup)};
  for (std::string line; std::getline(lines, line);) {
    // "hierarchy:controllers:group"
    size_t first = line.find(':');
    size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    std::string group = line.substr(second + 1);
    std::optional<CgroupMemory> found;
    if (controllers == ",,") {
      found = tightest(mount, group, {"memory.max", "memory.current", "inactive_file"});
    } else if (controllers.find(",memory,") != std::string::npos) {
      found = tightest(
          mount / "memory",
          group,
          {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"});
    }
    if (found && (!best || found->limit < best->limit)) {
      best = found;
    }
  }
  return best;
}

}  // namespace system_detail

#if defined(__APPLE__)

MemoryStatus memory_status() {
  MemoryStatus status;
  size_t size = sizeof(status.physical);
  sysctlbyname("hw.memsize", &status.physical, &size, nullptr, 0);
  vm_statistics64_data_t pages{};
  mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
  if (host_statistics64(
          mach_host_self(), HOST_VM_INFO64, reinterpret_cast<host_info64_t>(&pages), &count) ==
      KERN_SUCCESS) {
    // Free, file-backed and purgeable pages can be had without compressing or swapping anything.
    uint64_t page = static_cast<uint64_t>(getpagesize());
    status.available =
        (static_cast<uint64_t>(pages.free_count) + pages.inactive_count + pages.purgeable_count) *
        page;
  }
  status.total = status.physical;
  status.available = std::min(status.available, status.total);
  return status;
}

uint64_t current_rss() {
  mach_task_basic_info info{};
  mach_msg_type_number_t count = MACH_TASK_BASIC_INFO_COUNT;
  const kern_return_t result = task_info(
      mach_task_self(), MACH_TASK_BASIC_INFO, reinterpret_cast<task_info_t>(&info), &count);
  return result == KERN_SUCCESS ? info.resident_size : 0;
}

uint64_t peak_rss() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss);  // bytes here, kilobytes on Linux
}

bool reset_peak_rss() {
  return false;
}

#else

MemoryStatus memory_status() {
  MemoryStatus status;
  std::string meminfo = read_text("/proc/meminfo");
  uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  status.physical = system_detail::meminfo_bytes(meminfo, "MemTotal")
                        .value_or(static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * page);
  status.available = system_detail::meminfo_bytes(meminfo, "MemAvailable")
                         .value_or(static_cast<uint64_t>(sysconf(_SC_AVPHYS_PAGES)) * page);
  status.total = status.physical;
  if (auto group = system_detail::cgroup_memory(read_text("/proc/self/cgroup"), "/sys/fs/cgroup")) {
    status.cgroup_limit = group->limit;
    status.total = std::min(status.total, group->limit);
    status.available =
        std::min(status.available, group->limit - std::min(group->limit, group->used));
  }
  return status;
}

uint64_t current_rss() {
  uint64_t total = 0;  // pages
  uint64_t resident = 0;
  std::istringstream(read_text("/proc/self/statm")) >> total >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

uint64_t peak_rss() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

bool reset_peak_rss() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return file.good();
}

#endif

#if defined(MCL_ONFAULT)

std::optional<std::string> lock_memory() {
  if (mlockall(MCL_CURRENT | MCL_ONFAULT) == 0) {
    return std::nullopt;
  }
  const int error = errno;
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  if ((error == ENOMEM || error == EPERM) && limit.rlim_cur != RLIM_INFINITY) {
    return fmt::format(
        "memory cannot be locked, and may be swapped out: the limit is {} KB; raise it with ulimit "
        "-l unlimited, or LimitMEMLOCK=infinity for a service",
        limit.rlim_cur / 1024);
  }
  return fmt::format("memory cannot be locked, and may be swapped out: {}", std::strerror(error));
}

#else

std::optional<std::string> lock_memory() {
  return "this system cannot lock the memory of a process, which may be swapped out";
}

#endif

}  // namespace quince
