# Toolchain: Linux on arm64 from another processor, with our clang and Debian's arm64 C++ library.
# scripts/check-arm64 puts the arm64 MLX library into .deps/arm64. Programs run under qemu-user.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER clang-19)
set(CMAKE_CXX_COMPILER clang++-19)
set(CMAKE_C_COMPILER_TARGET aarch64-linux-gnu)
set(CMAKE_CXX_COMPILER_TARGET aarch64-linux-gnu)
set(CMAKE_EXE_LINKER_FLAGS_INIT "-fuse-ld=lld")
set(CMAKE_CROSSCOMPILING_EMULATOR
  "qemu-aarch64;-cpu;max;-L;/usr/aarch64-linux-gnu" CACHE STRING "runs tests")
set(QUINCE_MLX_DIR ${CMAKE_CURRENT_LIST_DIR}/../../.deps/arm64/mlx)
