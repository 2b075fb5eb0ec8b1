# QUINCE_SANITIZE=address,undefined or thread. A finding ends the program, so the test fails.
# libmlx and the Rust library are not instrumented; tests/sanitizers/ says what follows from that.
set(QUINCE_SANITIZE "" CACHE STRING "Sanitizers, as in -fsanitize=<this>")
set(QUINCE_SANITIZER_ENVIRONMENT "")
if(NOT QUINCE_SANITIZE)
  return()
endif()

add_compile_options(-fsanitize=${QUINCE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
add_link_options(-fsanitize=${QUINCE_SANITIZE})
if(QUINCE_FUZZ)
  # Our code tells libFuzzer which branches an input has reached.
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
# Assertions on, little optimization, line numbers: quick to build, and reports that can be read.
string(REPLACE "-DNDEBUG" "" CMAKE_CXX_FLAGS_RELWITHDEBINFO "${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")
string(REPLACE "-O2" "-O1" CMAKE_CXX_FLAGS_RELWITHDEBINFO "${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")
string(REPLACE "-g" "-gline-tables-only" CMAKE_CXX_FLAGS_RELWITHDEBINFO
  "${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")

set(suppressions ${CMAKE_SOURCE_DIR}/tests/sanitizers)
set(QUINCE_SANITIZER_ENVIRONMENT
  # Containers that cross into libmlx look overflowed to the instrumented side.
  "ASAN_OPTIONS=detect_container_overflow=0:strict_string_checks=1:detect_stack_use_after_return=1"
  "LSAN_OPTIONS=suppressions=${suppressions}/leak.txt:print_suppressions=0"
  "UBSAN_OPTIONS=print_stacktrace=1"
  "TSAN_OPTIONS=suppressions=${suppressions}/thread.txt:halt_on_error=1:second_deadlock_stack=1")
if(QUINCE_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)  # coverage for fuzz/
endif()
