// Which instruction set the native kernels use. Chosen once, from what the processor offers (CPUID;
// on ARM the kernel's hardware flags) and what the OS saves on a task switch (XCR0, and on Linux a
// permission asked for AMX tiles). QUINCE_CPU forces one that the machine has. Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace quince::kernels {

// Code for a path lives only in files named for it, so nothing else can hold its instructions:
//   avx2    *_avx2.cpp    AVX2, FMA, F16C
//   avx512  *_avx512.cpp  F, BW, DQ, VL, VNNI, VBMI
//   amx     *_amx.cpp     all of avx512, AVX512-BF16, AMX tile/int8/bf16
//   neon    *_neon.cpp    ARMv8.2 with dot product and half precision ("dotprod" is the same)
//   i8mm    *_i8mm.cpp    all of neon, int8 matrix multiply and bf16
// A path includes those above it in the list of its processor: amx may call avx512 code.
enum class CpuPath : uint8_t { scalar, avx2, avx512, amx, neon, i8mm };

std::string_view name(CpuPath path);

// Everything this machine can run, scalar first, best last.
std::span<const CpuPath> available_paths();

// The best available path, or the one that the environment variable QUINCE_CPU names. Throws
// UserError when it names one that does not exist or that this machine lacks.
CpuPath detect();

// The choice behind detect(), apart for tests: forced is QUINCE_CPU's value, null when unset.
CpuPath choose_path(const char* forced, std::span<const CpuPath> available);

}  // namespace quince::kernels
