#include "base/thread_pool.h"

#include <atomic>
#include <chrono>
#include <fstream>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/cpu_topology.h"

namespace quince {
namespace {

namespace fs = std::filesystem;

TEST(ThreadPool, RunsTheBodyOnceOnEveryMember) {
  for (int size : {1, 2, 3, 7}) {
    ThreadPool pool(size);
    EXPECT_EQ(pool.size(), size);
    for (int job = 0; job < 200; ++job) {
      std::vector<int> visits(size);
      pool.run([&](Team& team) {
        EXPECT_EQ(team.size(), size);
        ++visits[team.rank()];
      });
      EXPECT_EQ(visits, std::vector<int>(size, 1));
    }
  }
}

TEST(ThreadPool, AtLeastOneThread) {
  EXPECT_EQ(ThreadPool(0).size(), 1);
  EXPECT_EQ(ThreadPool(-3).size(), 1);
}

// Non-atomic data written before a sync must be what every member reads after it.
TEST(ThreadPool, SyncOrdersMemory) {
  for (int size : {1, 2, 4}) {
    ThreadPool pool(size, std::chrono::microseconds(5));
    std::vector<int> cells(size);
    std::atomic<int> wrong{0};
    pool.run([&](Team& team) {
      for (int round = 1; round <= 2000; ++round) {
        cells[team.rank()] = round;
        team.sync();
        for (int cell : cells) {
          wrong += cell != round;
        }
        team.sync();
      }
    });
    EXPECT_EQ(wrong, 0);
  }
}

TEST(ThreadPool, NextHandsOutEachChunkOnce) {
  ThreadPool pool(3);
  constexpr int kChunks = 100;
  std::vector<std::atomic<int>> taken(kChunks);
  pool.run([&](Team& team) {
    for (int round = 0; round < 50; ++round) {
      for (int64_t i = team.next(); i < kChunks; i = team.next()) {
        ++taken[i];
      }
      team.sync();
    }
  });
  for (auto& count : taken) {
    EXPECT_EQ(count, 50);
  }
}

TEST(ThreadPool, RestartSeparatesLoopsWithoutWaiting) {
  ThreadPool pool(3);
  constexpr int kLoops = 1 + Team::kMaxRestarts;
  constexpr int kChunks = 20;
  std::vector<std::atomic<int>> taken(kLoops * kChunks);
  for (int job = 0; job < 20; ++job) {
    pool.run([&](Team& team) {
      for (int round = 0; round < 5; ++round) {
        for (int loop = 0; loop < kLoops; ++loop) {
          if (loop > 0) {
            team.restart();
          }
          for (int64_t i = team.next(); i < kChunks; i = team.next()) {
            ++taken[loop * kChunks + i];
          }
        }
        team.sync();
      }
    });
  }
  for (auto& count : taken) {
    EXPECT_EQ(count, 100);
  }
}

TEST(ThreadPool, RethrowsAndStaysUsable) {
  ThreadPool pool(3);
  for (int thrower = 0; thrower < 3; ++thrower) {
    EXPECT_THROW(
        pool.run([&](Team& team) {
          if (team.rank() == thrower) {
            throw std::runtime_error("member failed");
          }
        }),
        std::runtime_error);
    std::atomic<int> visits{0};
    pool.run([&](Team& team) {
      team.sync();
      ++visits;
    });
    EXPECT_EQ(visits, 3);
  }
}

// A member that fails must not leave the others waiting for it for ever.
TEST(ThreadPool, FailureReleasesThoseWhoWaitInSync) {
  ThreadPool pool(4, std::chrono::microseconds(1));
  for (int job = 0; job < 50; ++job) {
    EXPECT_THROW(
        pool.run([&](Team& team) {
          team.sync();
          if (team.rank() == job % 4) {
            if (job % 2) {
              std::this_thread::sleep_for(std::chrono::milliseconds(2));  // the others are asleep
            }
            throw std::out_of_range("no");
          }
          team.sync();
          team.sync();
        }),
        std::out_of_range);
  }
}

TEST(ThreadPool, JobsOfSeveralThreadsTakeTurns) {
  ThreadPool pool(2);
  int64_t total = 0;  // not atomic: only one job may run at a time
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&] {
      for (int job = 0; job < 300; ++job) {
        pool.run([&](Team& team) {
          if (team.rank() == 1) {
            ++total;
          }
        });
      }
    });
  }
  for (std::thread& caller : callers) {
    caller.join();
  }
  EXPECT_EQ(total, 900);
}

TEST(ThreadPool, WakesSleepers) {
  ThreadPool pool(3, std::chrono::microseconds(0));
  for (int job = 0; job < 20; ++job) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::atomic<int> visits{0};
    pool.run([&](Team& team) {
      if (team.rank() == 2) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      team.sync();
      ++visits;
    });
    EXPECT_EQ(visits, 3);
  }
}

// More members than cores: barriers must still come through.
TEST(ThreadPool, SurvivesOversubscription) {
  int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  ThreadPool pool(4 * cores + 1);
  std::atomic<int64_t> sum{0};
  pool.run([&](Team& team) {
    for (int round = 0; round < 100; ++round) {
      sum += 1;
      team.sync();
    }
  });
  EXPECT_EQ(sum, 100 * pool.size());
}

class FakeRoot : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) /
            testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root_);
  }
  void TearDown() override {
    fs::remove_all(root_);
  }
  void file(const std::string& name, const std::string& text) {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  fs::path root_;
};

TEST_F(FakeRoot, CountsCoresNotThreads) {
  for (int cpu = 0; cpu < 8; ++cpu) {
    file(
        "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
        std::to_string(cpu % 4) + "," + std::to_string(cpu % 4 + 4) + "\n");
  }
  EXPECT_EQ(performance_cores_of(root_, {0, 1, 2, 3, 4, 5, 6, 7}), 4);
  EXPECT_EQ(performance_cores_of(root_, {0, 4}), 1);
  EXPECT_EQ(performance_cores_of(root_, {}), 1);
}

TEST_F(FakeRoot, LeavesOutEfficiencyCores) {
  EXPECT_EQ(performance_cores_of(root_, {0, 1, 2, 3}), 4) << "nothing known: all count";
  file("sys/devices/cpu_core/cpus", "0-1\n");
  EXPECT_EQ(performance_cores_of(root_, {0, 1, 2, 3}), 2);
  EXPECT_EQ(performance_cores_of(root_, {2, 3}), 2) << "only efficiency cores allowed";
}

TEST_F(FakeRoot, LeavesOutSmallArmCores) {
  for (int cpu = 0; cpu < 8; ++cpu) {
    std::string capacity = cpu < 4 ? "400" : cpu < 7 ? "870" : "1024";
    file("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cpu_capacity", capacity + "\n");
  }
  EXPECT_EQ(performance_cores_of(root_, {0, 1, 2, 3, 4, 5, 6, 7}), 4);
}

TEST_F(FakeRoot, ReadsTheQuotaOfTheGroupAndThoseAbove) {
  EXPECT_EQ(cgroup_cpu_limit(root_), 0);
  file("proc/self/cgroup", "0::/a/b\n");
  EXPECT_EQ(cgroup_cpu_limit(root_), 0);
  file("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_cpu_limit(root_), 0);
  file("sys/fs/cgroup/a/cpu.max", "350000 100000\n");
  EXPECT_EQ(cgroup_cpu_limit(root_), 4);
  file("sys/fs/cgroup/a/b/cpu.max", "10000 100000\n");
  EXPECT_EQ(cgroup_cpu_limit(root_), 1);
}

TEST_F(FakeRoot, ReadsOldControlGroups) {
  file("proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/docker/y\n");
  file("sys/fs/cgroup/cpu/docker/y/cpu.cfs_quota_us", "200000\n");
  file("sys/fs/cgroup/cpu/docker/y/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpu_limit(root_), 2);
  file("sys/fs/cgroup/cpu/docker/y/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(cgroup_cpu_limit(root_), 0);
}

TEST(CpuList, Parses) {
  EXPECT_EQ(parse_cpu_list("0-3,8"), (std::vector<int>{0, 1, 2, 3, 8}));
  EXPECT_EQ(parse_cpu_list(""), std::vector<int>{});
  EXPECT_EQ(parse_cpu_list("x,5,-"), std::vector<int>{5});
}

TEST(ThreadPool, DefaultSizeIsWithinTheMachine) {
  EXPECT_GE(ThreadPool::default_size(), 1);
  EXPECT_LE(
      ThreadPool::default_size(),
      static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
}

}  // namespace
}  // namespace quince
