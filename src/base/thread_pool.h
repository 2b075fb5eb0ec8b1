// The one pool that native kernels and loaders compute on. The caller of run() is a member of the
// team (rank 0); the others wait for work spinning for a short while, then asleep, so an idle
// program burns nothing. run() may be called from any thread; calls from several threads take
// turns.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

namespace quince {

class ThreadPool;

// What one thread of a running job sees.
class Team {
 public:
  int rank() const {
    return rank_;
  }
  int size() const {
    return size_;
  }
  // Every member waits here until all have come. Cheap (spins first). What members wrote before it,
  // all members see after it.
  void sync();
  // Hands out 0, 1, 2, ... each once over the whole team, starting anew after every sync() and
  // every restart(): dynamic sharing of work chunks.
  int64_t next();
  // Starts next() anew without waiting for the others. All members must call it equally often
  // between two syncs, at most kMaxRestarts times: lets several independent loops follow each other
  // without a sync between them.
  void restart();
  static constexpr int kMaxRestarts = 15;

 private:
  friend class ThreadPool;
  Team(ThreadPool& pool, int rank, int size) : pool_(pool), rank_(rank), size_(size) {}
  ThreadPool& pool_;
  int rank_;
  int size_;
  int slot_ = 0;  // which of the pool's counters next() uses
};

class ThreadPool {
 public:
  // threads: team size, the caller included; at least 1. spin: how long an idle member burns its
  // core before it goes to sleep (waking it costs about as much).
  explicit ThreadPool(int threads, std::chrono::microseconds spin = std::chrono::microseconds(50));
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  // Runs body on every member and returns when all are done. The first exception thrown by a member
  // is rethrown; members that wait for it in sync() are released (their sync() throws, so their
  // bodies unwind). Not reentrant.
  void run(const std::function<void(Team&)>& body);

  // Performance cores of this machine that the process may run on: the default team size.
  static int default_size();

 private:
  friend class Team;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quince
