# The outside libraries in a cross build, under the same target names as in cmake/Dependencies.cmake.
# There is no system of the other kind to take them from: the header-only ones come from this machine,
# Boost.JSON is compiled from its headers, MLX is the other system's own wheel, and those that exist
# only as compiled libraries (curl, OpenSSL, libedit, prometheus-cpp, the Rust bridge) give their headers and leave
# their functions undefined.
find_package(Threads REQUIRED)

# /usr/include itself must stay out of the search path; only these packages are seen.
set(cross_include ${CMAKE_BINARY_DIR}/include)
file(MAKE_DIRECTORY ${cross_include})
foreach(package boost fmt CLI curl openssl editline histedit.h prometheus spdlog toml++)
  find_path(${package}_ROOT ${package} PATHS ${CMAKE_SOURCE_DIR}/.deps/boost/include /usr/include
    /usr/include/x86_64-linux-gnu NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH)
  if(${package}_ROOT)
    file(CREATE_LINK ${${package}_ROOT}/${package} ${cross_include}/${package} SYMBOLIC)
  endif()
endforeach()
# OpenSSL keeps its generated header apart from the others on Debian.
file(GLOB generated /usr/include/*-linux-gnu/openssl)
set(cross_generated ${CMAKE_BINARY_DIR}/generated_include)
file(MAKE_DIRECTORY ${cross_generated})
if(generated)
  list(GET generated 0 generated)
  file(CREATE_LINK ${generated} ${cross_generated}/openssl SYMBOLIC)
  file(CREATE_LINK /usr/include/openssl ${cross_include}/openssl SYMBOLIC)
endif()

function(header_library target)
  add_library(${target} INTERFACE IMPORTED GLOBAL)
  target_include_directories(${target} SYSTEM INTERFACE ${cross_include} ${cross_generated})
  target_compile_definitions(${target} INTERFACE ${ARGN})
endfunction()
header_library(Boost::headers)
header_library(Boost::url)
header_library(fmt::fmt FMT_HEADER_ONLY)
header_library(CLI11::CLI11)
header_library(Toml::header)

# Whose functions stay undefined.
if(APPLE)
  set(leave_undefined -Wl,-undefined,dynamic_lookup)
else()
  set(leave_undefined -Wl,--unresolved-symbols=ignore-all)
endif()
foreach(library Edit::edit Prometheus::core CURL::libcurl OpenSSL::Crypto OpenSSL::SSL)
  header_library(${library})
  target_link_options(${library} INTERFACE ${leave_undefined})
endforeach()

add_library(cross_boost_json STATIC ${CMAKE_CURRENT_LIST_DIR}/boost_json.cpp)
target_link_libraries(cross_boost_json PUBLIC Boost::headers)
add_library(Boost::json ALIAS cross_boost_json)

add_library(quince_bridge INTERFACE)
target_include_directories(quince_bridge INTERFACE ${CMAKE_SOURCE_DIR}/bridge/include)
target_link_options(quince_bridge INTERFACE ${leave_undefined})

if(QUINCE_TESTS)
  set(INSTALL_GTEST OFF)
  add_subdirectory(/usr/src/googletest ${CMAKE_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
  foreach(name gtest gmock gtest_main)
    target_compile_options(${name} PRIVATE -w)
    if(NOT TARGET GTest::${name})
      add_library(GTest::${name} ALIAS ${name})
    endif()
  endforeach()
endif()
