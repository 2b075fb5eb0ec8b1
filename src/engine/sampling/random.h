// Random numbers that depend on seed, step and purpose alone, so that a request draws the same
// whatever else runs beside it. splitmix64 (Steele, Lea, Flood 2014). No MLX.
#pragma once

#include <cstdint>

namespace quince {

enum class Draw : uint64_t { token = 0, xtc = 0x8000000000000000ULL };

inline uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// From 0 up to, but not, 1.
inline double uniform(uint64_t seed, uint64_t step, Draw draw) {
  return static_cast<double>(mix(mix(seed) ^ step ^ static_cast<uint64_t>(draw)) >> 11) * 0x1.0p-53;
}

}  // namespace quince
