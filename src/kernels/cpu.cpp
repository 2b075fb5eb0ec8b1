#include "kernels/cpu.h"

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__)
#if defined(__linux__)
#include <sys/auxv.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif
#endif

namespace quince::kernels {

namespace {

struct PathName {
  std::string_view name;
  CpuPath path;
};
constexpr std::array<PathName, 7> kNames{{
    {"scalar", CpuPath::scalar},
    {"avx2", CpuPath::avx2},
    {"avx512", CpuPath::avx512},
    {"amx", CpuPath::amx},
    {"neon", CpuPath::neon},
    {"i8mm", CpuPath::i8mm},
    {"dotprod", CpuPath::neon},  // other name, so after the real one
}};

std::string join_names(std::span<const CpuPath> paths) {
  std::string text;
  for (const CpuPath path : paths) {
    text += text.empty() ? "" : ", ";
    text += name(path);
  }
  return text;
}

#if defined(__x86_64__)

bool bit(unsigned value, int index) {
  return (value >> index) & 1;
}

// XCR0: which register files the OS saves. Needs OSXSAVE (checked by the caller).
uint64_t saved_states() {
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

// Linux gives a process the large tile state only when asked (arch_prctl, since 5.16).
bool ask_for_tiles() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

// Bit numbers: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, CPUID.
std::vector<CpuPath> find_paths() {
  std::vector<CpuPath> paths{CpuPath::scalar};
  unsigned a = 0, b = 0, c1 = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c1, &d) || !bit(c1, 27)) {  // OSXSAVE
    return paths;
  }
  unsigned b7 = 0, c7 = 0, d7 = 0;
  if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d7)) {
    return paths;
  }
  unsigned a71 = 0;
  if (a >= 1) {
    __get_cpuid_count(7, 1, &a71, &b, &c1, &d);
    __get_cpuid(1, &a, &b, &c1, &d);
  }
  const uint64_t states = saved_states();
  const bool ymm_saved = (states & 0x6) == 0x6;
  const bool zmm_saved = (states & 0xe6) == 0xe6;
  const bool tiles_saved = (states & 0x60000) == 0x60000;
  const bool avx2 = bit(c1, 28) && bit(c1, 12) && bit(c1, 29) && bit(b7, 5);  // AVX FMA F16C AVX2
  if (!avx2 || !ymm_saved) {
    return paths;
  }
  paths.push_back(CpuPath::avx2);
  const bool avx512 = bit(b7, 16) && bit(b7, 17) && bit(b7, 30) && bit(b7, 31) &&  // F DQ BW VL
                      bit(c7, 11) && bit(c7, 1);                                   // VNNI VBMI
  if (!avx512 || !zmm_saved) {
    return paths;
  }
  paths.push_back(CpuPath::avx512);
  const bool amx = bit(a71, 5) && bit(d7, 22) && bit(d7, 24) && bit(d7, 25);  // AVX512-BF16, AMX
  if (amx && tiles_saved && ask_for_tiles()) {
    paths.push_back(CpuPath::amx);
  }
  return paths;
}

#elif defined(__aarch64__)

#if defined(__APPLE__)
bool has(const char* feature) {
  int value = 0;
  size_t size = sizeof(value);
  return ::sysctlbyname(feature, &value, &size, nullptr, 0) == 0 && value != 0;
}
#endif

std::vector<CpuPath> find_paths() {
  std::vector<CpuPath> paths{CpuPath::scalar};
#if defined(__linux__)
  // Kernel ABI: arch/arm64/include/uapi/asm/hwcap.h.
  const unsigned long caps = ::getauxval(AT_HWCAP);
  const unsigned long caps2 = ::getauxval(AT_HWCAP2);
  const bool neon =
      (caps >> 20 & 1) && (caps >> 10 & 1) && (caps >> 9 & 1);  // ASIMDDP ASIMDHP FPHP
  const bool i8mm = (caps2 >> 13 & 1) && (caps2 >> 14 & 1);     // I8MM BF16
#elif defined(__APPLE__)
  const bool neon = has("hw.optional.arm.FEAT_DotProd") && has("hw.optional.arm.FEAT_FP16");
  const bool i8mm = has("hw.optional.arm.FEAT_I8MM") && has("hw.optional.arm.FEAT_BF16");
#else
  const bool neon = false;
  const bool i8mm = false;
#endif
  if (neon) {
    paths.push_back(CpuPath::neon);
    if (i8mm) {
      paths.push_back(CpuPath::i8mm);
    }
  }
  return paths;
}

#else

std::vector<CpuPath> find_paths() {
  return {CpuPath::scalar};
}

#endif

}  // namespace

std::string_view name(CpuPath path) {
  for (const PathName& row : kNames) {
    if (row.path == path) {
      return row.name;
    }
  }
  return "unknown";
}

std::span<const CpuPath> available_paths() {
  static const std::vector<CpuPath> paths = find_paths();
  return paths;
}

CpuPath choose_path(const char* forced, std::span<const CpuPath> available) {
  if (!forced || !*forced) {
    return available.back();
  }
  for (const PathName& row : kNames) {
    if (row.name != forced) {
      continue;
    }
    for (const CpuPath path : available) {
      if (path == row.path) {
        return path;
      }
    }
    throw UserError(
        "QUINCE_CPU={}: this machine cannot run it; it has: {}", forced, join_names(available));
  }
  throw UserError(
      "QUINCE_CPU={}: no such instruction set; this machine has: {}",
      forced,
      join_names(available));
}

CpuPath detect() {
  static const CpuPath path = choose_path(std::getenv("QUINCE_CPU"), available_paths());
  return path;
}

}  // namespace quince::kernels
