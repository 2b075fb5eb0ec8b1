#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/cpu_topology.h"

namespace quince {

namespace {

using Clock = std::chrono::steady_clock;

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // longer than yield, about as long as x86's pause
#endif
}

// Thrown by sync() in members that wait for one that failed. Caught by the pool alone.
struct JobAborted {};

// A number that threads wait to see changed: spinning, then yielding, then asleep.
class alignas(64) Signal {
 public:
  uint32_t load() const {
    return value_.load(std::memory_order_acquire);
  }

  void add_one() {
    // Sequentially consistent with sleepers_: either the sleeper sees the new value, or we see it.
    value_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) {
      std::lock_guard lock(mutex_);
      woken_.notify_all();
    }
  }

  // Returns once the value differs from old.
  void wait(uint32_t old, std::chrono::microseconds spin) {
    if (value_.load(std::memory_order_acquire) != old) {
      return;
    }
    auto start = Clock::now();
    auto patience = spin * 4;  // yielding is cheap for others: be more patient
    for (auto waited = Clock::duration::zero(); waited < patience; waited = Clock::now() - start) {
      for (int i = 0; i < 16; ++i) {
        if (value_.load(std::memory_order_acquire) != old) {
          return;
        }
        relax();
      }
      if (waited > spin) {
        // The thread we wait for may need this very core.
        std::this_thread::yield();
      }
    }
    std::unique_lock lock(mutex_);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    woken_.wait(lock, [&] { return value_.load(std::memory_order_seq_cst) != old; });
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  std::atomic<uint32_t> value_{0};
  std::atomic<int> sleepers_{0};
  std::mutex mutex_;  // guards going to sleep only
  std::condition_variable woken_;
};

struct alignas(64) Counter {
  std::atomic<int64_t> value{0};
};

}  // namespace

struct ThreadPool::Impl {
  Impl(ThreadPool& pool, int threads, std::chrono::microseconds spin)
      : pool(pool), size(threads), spin(spin) {}

  ThreadPool& pool;
  const int size;
  const std::chrono::microseconds spin;

  std::mutex turn;  // held by the thread whose job runs
  Signal job;       // one more for every job, and for the end
  Signal done;      // one more when the last worker leaves a job
  Signal barrier;   // one more when all members have come, or one has failed
  Counter arrived;
  Counter working;  // workers still inside the job
  Counter tickets[Team::kMaxRestarts + 1];
  const std::function<void(Team&)>* body = nullptr;
  std::atomic<bool> failed{false};
  std::mutex error_mutex;  // members may fail at once
  std::exception_ptr error;
  bool stopping = false;  // written before job.add_one()
  std::vector<std::thread> workers;

  void work(Team& team) {
    try {
      (*body)(team);
    } catch (const JobAborted&) {
      return;  // the member that failed has left its exception
    } catch (...) {
      {
        std::lock_guard lock(error_mutex);
        if (!error) {
          error = std::current_exception();
        }
      }
      failed.store(true, std::memory_order_seq_cst);
      barrier.add_one();
    }
  }

  void worker_loop(int rank) {
    for (uint32_t seen = 0;; ++seen) {
      job.wait(seen, spin);
      if (stopping) {
        return;
      }
      Team team(pool, rank, size);
      work(team);
      if (working.value.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        done.add_one();
      }
    }
  }

  void reset_tickets(int used) {
    for (int i = 0; i <= used; ++i) {
      tickets[i].value.store(0, std::memory_order_relaxed);
    }
  }
};

ThreadPool::ThreadPool(int threads, std::chrono::microseconds spin)
    : impl_(std::make_unique<Impl>(*this, std::max(threads, 1), spin)) {
  for (int rank = 1; rank < impl_->size; ++rank) {
    impl_->workers.emplace_back([impl = impl_.get(), rank] { impl->worker_loop(rank); });
  }
}

ThreadPool::~ThreadPool() {
  impl_->stopping = true;
  impl_->job.add_one();
  for (std::thread& worker : impl_->workers) {
    worker.join();
  }
}

int ThreadPool::size() const {
  return impl_->size;
}

void ThreadPool::run(const std::function<void(Team&)>& body) {
  Impl& impl = *impl_;
  std::lock_guard lock(impl.turn);
  impl.body = &body;
  impl.error = nullptr;
  impl.failed.store(false, std::memory_order_relaxed);
  impl.arrived.value.store(0, std::memory_order_relaxed);
  impl.working.value.store(impl.size - 1, std::memory_order_relaxed);
  impl.reset_tickets(Team::kMaxRestarts);
  uint32_t before = impl.done.load();
  impl.job.add_one();
  Team team(*this, 0, impl.size);
  impl.work(team);
  if (impl.size > 1) {
    impl.done.wait(before, impl.spin);
  }
  impl.body = nullptr;
  if (impl.error) {
    std::rethrow_exception(std::exchange(impl.error, nullptr));
  }
}

int ThreadPool::default_size() {
  return usable_performance_cores();
}

void Team::sync() {
  ThreadPool::Impl& impl = *pool_.impl_;
  int used = std::exchange(slot_, 0);
  if (size_ == 1) {
    impl.reset_tickets(used);
    return;
  }
  uint32_t before = impl.barrier.load();
  if (impl.failed.load(std::memory_order_seq_cst)) {
    throw JobAborted{};
  }
  if (impl.arrived.value.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
    impl.arrived.value.store(0, std::memory_order_relaxed);
    impl.reset_tickets(used);
    impl.barrier.add_one();
    return;
  }
  impl.barrier.wait(before, impl.spin);
  if (impl.failed.load(std::memory_order_seq_cst)) {
    throw JobAborted{};
  }
}

int64_t Team::next() {
  return pool_.impl_->tickets[slot_].value.fetch_add(1, std::memory_order_relaxed);
}

void Team::restart() {
  assert(slot_ < kMaxRestarts);
  ++slot_;
}

}  // namespace quince
