# Toolchain: macOS on Apple silicon from Linux, with the clang, linker and system headers of zig.
# scripts/check-macos puts zig and the macOS MLX library into .deps/macos.
set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_PROCESSOR arm64)
set(zig ${CMAKE_CURRENT_LIST_DIR}/../../.deps/macos/ziglang/zig)
set(CMAKE_C_COMPILER ${zig} cc)
set(CMAKE_CXX_COMPILER ${zig} c++)
set(CMAKE_C_FLAGS_INIT "-target aarch64-macos.14.0")
set(CMAKE_CXX_FLAGS_INIT "-target aarch64-macos.14.0")
# The check is that it compiles and links, so: no optimization.
set(CMAKE_CXX_FLAGS_RELEASE "-O0 -DNDEBUG -fno-sanitize=undefined" CACHE STRING "")
set(CMAKE_OSX_SYSROOT "" CACHE STRING "zig has its own")
set(CMAKE_OSX_DEPLOYMENT_TARGET "" CACHE STRING "part of zig's target")
set(CMAKE_OSX_ARCHITECTURES "" CACHE STRING "part of zig's target")
find_program(CMAKE_AR NAMES llvm-ar-19 llvm-ar REQUIRED)
find_program(CMAKE_RANLIB NAMES llvm-ranlib-19 llvm-ranlib REQUIRED)
set(CMAKE_INSTALL_NAME_TOOL true CACHE STRING "nothing is installed from here")
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(QUINCE_MLX_DIR ${CMAKE_CURRENT_LIST_DIR}/../../.deps/macos/mlx)
