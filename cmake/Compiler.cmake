# Included before project(): picks the compiler that Quince is developed with, clang 19, on Linux when
# it is there and nobody asked for another one (-DCMAKE_CXX_COMPILER=..., or the variables CC and CXX).
# GCC 12 miscompiles AMX tile code. macOS uses Apple's clang.
if(CMAKE_HOST_SYSTEM_NAME STREQUAL "Linux" AND NOT CMAKE_TOOLCHAIN_FILE
   AND NOT DEFINED CMAKE_CXX_COMPILER AND NOT DEFINED ENV{CXX})
  find_program(QUINCE_CLANGXX clang++-19)
  find_program(QUINCE_CLANG clang-19)
  if(QUINCE_CLANGXX AND QUINCE_CLANG)
    set(CMAKE_CXX_COMPILER ${QUINCE_CLANGXX} CACHE FILEPATH "C++ compiler")
    set(CMAKE_C_COMPILER ${QUINCE_CLANG} CACHE FILEPATH "C compiler")
  endif()
endif()
