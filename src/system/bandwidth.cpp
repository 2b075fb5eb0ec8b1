#include "system/bandwidth.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "base/anonymous_memory.h"
#include "system/machine.h"
#include "system/memory.h"

namespace quince {

namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kLine = 64;

size_t default_buffer() {
  constexpr size_t kMegabyte = size_t{1} << 20;
  uint64_t wanted =
      std::clamp<uint64_t>(machine().last_level_cache * 4, 256 * kMegabyte, 1024 * kMegabyte);
  uint64_t affordable = std::max<uint64_t>(memory_status().available / 4, 64 * kMegabyte);
  return static_cast<size_t>(std::min(wanted, affordable));
}

// Four independent 64-byte vectors, and the next kilobyte asked for: enough loads in flight for the
// memory to be the limit, whatever vector width the compiler may use.
using Vector = uint64_t __attribute__((vector_size(kLine)));
constexpr size_t kAhead = 1024 / sizeof(Vector);

uint64_t read_all(const std::byte* data, size_t bytes) {
  Vector sums[4] = {};
  const auto* vectors = reinterpret_cast<const Vector*>(data);
  size_t count = bytes / sizeof(Vector) / 4 * 4;
  for (size_t i = 0; i < count; i += 4) {
    for (size_t j = 0; j < 4; j++) {
      __builtin_prefetch(vectors + i + kAhead + j);
      sums[j] += vectors[i + j];
    }
  }
  Vector sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  uint64_t total = 0;
  for (size_t i = 0; i < kLine / sizeof(uint64_t); i++) {
    total += sum[i];
  }
  return total;
}

}  // namespace

Bandwidth measure_read_bandwidth(ThreadPool& pool, BandwidthOptions options) {
  Bandwidth result;
  result.threads = pool.size();
  size_t wanted = options.buffer > 0 ? options.buffer : default_buffer();
  // Whole pages for every member.
  size_t part = std::max<size_t>(wanted / pool.size() / 4096, 1) * 4096;
  result.buffer = part * pool.size();
  const AnonymousMemory data(result.buffer, true);  // as the weights are

  // Each member touches its own part first, so that the pages lie on its memory node.
  pool.run(
      [&](Team& team) { std::memset(data.data() + team.rank() * part, team.rank() + 1, part); });

  std::atomic<uint64_t> checksum = 0;  // keeps the reads alive
  auto pass = [&] {
    auto start = Clock::now();
    pool.run([&](Team& team) { checksum += read_all(data.data() + team.rank() * part, part); });
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  pass();
  auto deadline = Clock::now() + std::chrono::duration<double>(options.seconds);
  double best = 0;
  do {
    double seconds = pass();
    best = std::max(best, static_cast<double>(result.buffer) / std::max(seconds, 1e-9));
    result.passes++;
  } while (Clock::now() < deadline);
  result.gb_per_second = checksum == 0 ? 0 : best / 1e9;
  return result;
}

}  // namespace quince
