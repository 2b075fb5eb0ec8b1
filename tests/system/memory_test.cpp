#include "system/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>

#include "sanitizers/build.h"
#include "system/machine.h"

namespace quince {
namespace {

namespace fs = std::filesystem;

TEST(MemoryStatus, IsPlausible) {
  MemoryStatus status = memory_status();
  EXPECT_GT(status.physical, uint64_t{64} << 20);
  EXPECT_LE(status.total, status.physical);
  EXPECT_GT(status.total, 0u);
  EXPECT_LE(status.available, status.physical);
}

#if defined(MCL_ONFAULT)

// In a process of its own, whose exit status says which expectation failed.
int status_of(const std::function<int()>& act) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(act());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(LockMemory, LocksWhatIsThereAndSaysWhyNot) {
  if (test::kSanitized) {
    GTEST_SKIP() << "sanitizers leave memory unlocked";
  }
  EXPECT_EQ(
      status_of([] {
        if (const auto why = lock_memory()) {
          return why->find("ulimit -l") != std::string::npos ? 0 : 1;
        }
        std::ifstream status("/proc/self/status");
        for (std::string line; std::getline(status, line);) {
          if (line.starts_with("VmLck:")) {
            return std::strtol(line.c_str() + 6, nullptr, 10) > 0 ? 0 : 2;
          }
        }
        return 3;
      }),
      0);
  EXPECT_EQ(
      status_of([] {
        const rlimit little{64 << 10, 64 << 10};
        if (::setrlimit(RLIMIT_MEMLOCK, &little) != 0) {
          return 1;
        }
        if (::getuid() == 0 && ::setuid(65534) != 0) {  // who has the right needs no limit
          return 2;
        }
        const auto why = lock_memory();
        return !why ? 3 : why->find("the limit is 64 KB") == std::string::npos ? 4 : 0;
      }),
      0);
}

#endif

TEST(PeakRss, BeginsAnew) {
  uint64_t with_block = 0;
  {
    constexpr size_t kBlock = size_t{64} << 20;  // straight from the system, and back to it
    void* block =
        ::mmap(nullptr, kBlock, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(block, MAP_FAILED);
    std::memset(block, 1, kBlock);
    with_block = peak_rss();
    ::munmap(block, kBlock);
  }
  if (!reset_peak_rss()) {
    GTEST_SKIP() << "this system keeps the peak";
  }
  EXPECT_LT(peak_rss(), with_block - (uint64_t{32} << 20));
}

TEST(PeakRss, GrowsWithTouchedMemory) {
  uint64_t before = peak_rss();
  EXPECT_GT(before, uint64_t{1} << 20);
  // More than the whole process has ever used, so that the peak must rise.
  size_t bytes = static_cast<size_t>(before) + (size_t{64} << 20);
  std::unique_ptr<char[]> block(new char[bytes]);
  std::memset(block.get(), 1, bytes);
  EXPECT_GE(peak_rss(), before + (uint64_t{32} << 20));
  EXPECT_EQ(block[bytes - 1], 1);
}

TEST(Meminfo, FindsWholeKeysOnly) {
  const char* text = "MemTotal:       24688128 kB\nMemAvailable:   100 kB\nMem: 5 kB\nOdd\n";
  EXPECT_EQ(system_detail::meminfo_bytes(text, "MemTotal"), 24688128ull * 1024);
  EXPECT_EQ(system_detail::meminfo_bytes(text, "MemAvailable"), 100ull * 1024);
  EXPECT_EQ(system_detail::meminfo_bytes(text, "Mem"), 5ull * 1024);
  EXPECT_FALSE(system_detail::meminfo_bytes(text, "MemFree"));
  EXPECT_FALSE(system_detail::meminfo_bytes(text, "Odd"));
}

class CgroupTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = fs::temp_directory_path() / "quince-cgroup-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    mount_ = name;
  }
  void TearDown() override {
    fs::remove_all(mount_);
  }
  void write(const fs::path& relative, const std::string& text) {
    fs::create_directories((mount_ / relative).parent_path());
    std::ofstream(mount_ / relative) << text;
  }
  fs::path mount_;
};

TEST_F(CgroupTest, VersionTwoTakesTheTightestAncestor) {
  write("memory.max", "max\n");
  write("a/memory.max", "1000\n");
  write("a/memory.current", "700\n");
  write("a/memory.stat", "anon 400\ninactive_file 250\n");
  write("a/b/memory.max", "5000\n");
  auto found = system_detail::cgroup_memory("0::/a/b\n", mount_);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->limit, 1000u);
  EXPECT_EQ(found->used, 450u);
}

TEST_F(CgroupTest, VersionOneReadsTheMemoryController) {
  write("memory/box/memory.limit_in_bytes", "2048\n");
  write("memory/box/memory.usage_in_bytes", "1024\n");
  write("memory/memory.limit_in_bytes", "9223372036854771712\n");
  auto found = system_detail::cgroup_memory("5:devices:/x\n4:cpuset,memory:/box\n0::/\n", mount_);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->limit, 2048u);
  EXPECT_EQ(found->used, 1024u);
}

TEST_F(CgroupTest, NoLimitIsNothing) {
  write("memory.max", "max\n");
  EXPECT_FALSE(system_detail::cgroup_memory("0::/\n", mount_));
  EXPECT_FALSE(system_detail::cgroup_memory("", mount_));
  EXPECT_FALSE(system_detail::cgroup_memory("garbage\n:\n", mount_));
}

TEST(Machine, HasCores) {
  Machine here = machine();
  EXPECT_GE(here.cores, 1);
  EXPECT_GE(here.performance_cores, 1);
  EXPECT_LE(here.performance_cores, here.cores);
  EXPECT_FALSE(here.cpu.empty());
  EXPECT_FALSE(here.system.empty());
}

}  // namespace
}  // namespace quince
