// How fast this machine reads memory: the bound on decoding, where every token reads every weight.
#pragma once

#include <cstddef>

#include "base/thread_pool.h"

namespace quince {

struct BandwidthOptions {
  // Bytes read over and over. 0: four times the largest cache, held between 256 MB and 1 GB and to
  // a quarter of the free memory. A cache larger than that (shared server chips) may hold part of
  // the buffer, so the figure is then an upper bound.
  size_t buffer = 0;
  double seconds = 1.0;  // for measuring, after one warm pass
};

struct Bandwidth {
  double gb_per_second = 0;  // best pass, 10^9 bytes
  size_t buffer = 0;
  int threads = 0;
  int passes = 0;
};

// All members of the pool read disjoint parts, front to back. Takes about options.seconds plus the
// time to fill the buffer (below 2 s together with the defaults on any machine that runs models).
Bandwidth measure_read_bandwidth(ThreadPool& pool, BandwidthOptions options = {});

}  // namespace quince
