// Sharing row work between the members of the pool.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/thread_pool.h"

namespace quince {

// Calls work(first, count) for consecutive chunks of [0, n), in any order, on any member.
template <typename Work>
void for_chunks(ThreadPool& pool, int64_t n, int64_t chunk, const Work& work) {
  pool.run([&](Team& team) {
    for (int64_t first = team.next() * chunk; first < n; first = team.next() * chunk) {
      work(first, std::min(chunk, n - first));
    }
  });
}

}  // namespace quince
