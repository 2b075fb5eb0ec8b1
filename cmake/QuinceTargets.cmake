# quince_library(NAME DEPS ...): the static library quince_NAME out of src/NAME.
# Sources that need an instruction set the machine may lack carry it in their name
# (x_avx2.cpp, x_avx512.cpp, x_amx.cpp) and are left out on other processors.
function(quince_library name)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp)
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(FILTER sources EXCLUDE REGEX "_(avx2|avx512|amx)\\.cpp$")
  endif()
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    list(FILTER sources EXCLUDE REGEX "_(neon|i8mm)\\.cpp$")
  endif()
  foreach(source IN LISTS sources)
    if(source MATCHES "_avx2\\.cpp$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
    elseif(source MATCHES "_avx512\\.cpp$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
        "-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512vnni;-mavx512vbmi;-mprefer-vector-width=512")
    elseif(source MATCHES "_amx\\.cpp$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
        "-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512vnni;-mavx512vbmi;-mavx512bf16;-mamx-tile;-mamx-int8;-mamx-bf16;-mprfchw;-mprefer-vector-width=512")
    elseif(APPLE AND source MATCHES "_i8mm\\.cpp$")
      # Every Apple processor has the rest; -march means something else to zig's clang.
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
        "-Xclang;-target-feature;-Xclang;+i8mm;-Xclang;-target-feature;-Xclang;+bf16")
    elseif(APPLE AND source MATCHES "_neon\\.cpp$")
      # nothing to add
    elseif(source MATCHES "_neon\\.cpp$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-march=armv8.2-a+dotprod+fp16")
    elseif(source MATCHES "_i8mm\\.cpp$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-march=armv8.2-a+dotprod+fp16+i8mm+bf16")
    endif()
  endforeach()
  if(sources)
    add_library(quince_${name} STATIC ${sources})
    set(scope PUBLIC)
  else()
    add_library(quince_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(quince_${name} ${scope} ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(quince_${name} ${scope} ${ARG_DEPS})
endfunction()

# quince_embed(TARGET HEADER NAMESPACE FILES...): TARGET may include HEADER, made of the files' text.
function(quince_embed target header namespace)
  set(out ${CMAKE_BINARY_DIR}/generated/${header})
  list(TRANSFORM ARGN PREPEND ${CMAKE_SOURCE_DIR}/ OUTPUT_VARIABLE files)
  add_custom_command(OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DOUT=${out} -DNAMESPACE=${namespace} -P ${CMAKE_SOURCE_DIR}/cmake/Embed.cmake ${files}
    DEPENDS ${files} ${CMAKE_SOURCE_DIR}/cmake/Embed.cmake VERBATIM)
  target_sources(${target} PRIVATE ${out})
  target_include_directories(${target} PRIVATE ${CMAKE_BINARY_DIR}/generated)
endfunction()

# quince_test(NAME LIBS ...): the test program NAME_test out of tests/NAME.
function(quince_test name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*_test.cpp)
  if(NOT sources)
    return()
  endif()
  add_executable(${name}_test ${sources})
  target_include_directories(${name}_test PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_compile_definitions(${name}_test PRIVATE QUINCE_TEST_DATA="${CMAKE_SOURCE_DIR}/tests")
  target_link_libraries(${name}_test PRIVATE ${ARGN} GTest::gtest_main GTest::gmock)
  add_test(NAME ${name} COMMAND ${name}_test)
  set_tests_properties(${name} PROPERTIES ENVIRONMENT "${QUINCE_SANITIZER_ENVIRONMENT}" TIMEOUT 1500)
endfunction()
