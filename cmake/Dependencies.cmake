# Every outside library, in one place.
include(Mlx)
if(CMAKE_CROSSCOMPILING)
  include(cross/Dependencies)
  return()
endif()
find_package(Threads REQUIRED)
if(APPLE AND NOT OPENSSL_ROOT_DIR AND EXISTS /opt/homebrew/opt/openssl@3)
  set(OPENSSL_ROOT_DIR /opt/homebrew/opt/openssl@3)  # Homebrew does not put it in the usual places
endif()
find_package(OpenSSL REQUIRED)
find_package(CURL REQUIRED)
find_package(fmt REQUIRED)
find_package(CLI11 REQUIRED)
find_path(SPDLOG_INCLUDE_DIR spdlog/async_logger.h REQUIRED)
find_path(EDIT_INCLUDE_DIR histedit.h REQUIRED)
find_library(EDIT_LIBRARY edit REQUIRED)
add_library(Edit::edit INTERFACE IMPORTED)
set_target_properties(Edit::edit PROPERTIES
  INTERFACE_INCLUDE_DIRECTORIES ${EDIT_INCLUDE_DIR}
  INTERFACE_LINK_LIBRARIES ${EDIT_LIBRARY})
find_path(TOML_INCLUDE_DIR toml++/toml.h REQUIRED)
add_library(Toml::header INTERFACE IMPORTED)
set_target_properties(Toml::header PROPERTIES INTERFACE_INCLUDE_DIRECTORIES ${TOML_INCLUDE_DIR})
find_path(PROMETHEUS_INCLUDE_DIR prometheus/registry.h REQUIRED)
find_library(PROMETHEUS_LIBRARY prometheus-cpp-core REQUIRED)
add_library(Prometheus::core INTERFACE IMPORTED)
set_target_properties(Prometheus::core PROPERTIES
  INTERFACE_INCLUDE_DIRECTORIES ${PROMETHEUS_INCLUDE_DIR}
  INTERFACE_LINK_LIBRARIES ${PROMETHEUS_LIBRARY})

# .deps/boost is there only where the system's Boost is too old. Linked statically: two small libraries.
list(PREPEND CMAKE_PREFIX_PATH ${CMAKE_SOURCE_DIR}/.deps/boost)
set(Boost_USE_STATIC_LIBS ON)
find_package(Boost 1.81 REQUIRED COMPONENTS json url)

# The Rust library of tokenizers, templates and grammars, behind one C header.
find_program(CARGO cargo HINTS $ENV{HOME}/.cargo/bin REQUIRED)
set(bridge_library ${CMAKE_SOURCE_DIR}/bridge/target/release/libquince_bridge.a)
if(QUINCE_SANITIZE MATCHES "thread")
  # Rust code is not instrumented, but the malloc, free and memcpy that it calls are. In a library of
  # its own it is known by name, so tests/sanitizers/thread.txt can leave those calls alone.
  set(bridge_library ${CMAKE_SOURCE_DIR}/bridge/target/release/libquince_bridge.so)
endif()
file(GLOB_RECURSE bridge_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bridge/src/*.rs)
add_custom_command(
  OUTPUT ${bridge_library}
  COMMAND ${CARGO} build --release --locked --quiet
  # cargo leaves the file alone when only dates changed; ninja would then ask again every time.
  COMMAND ${CMAKE_COMMAND} -E touch ${bridge_library}
  WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}/bridge
  DEPENDS ${bridge_sources} ${CMAKE_SOURCE_DIR}/bridge/Cargo.toml
          ${CMAKE_SOURCE_DIR}/bridge/Cargo.lock
  COMMENT "Building the Rust bridge")
add_custom_target(bridge_build DEPENDS ${bridge_library})
add_library(quince_bridge INTERFACE)
add_dependencies(quince_bridge bridge_build)
target_include_directories(quince_bridge INTERFACE ${CMAKE_SOURCE_DIR}/bridge/include)
target_link_libraries(quince_bridge INTERFACE ${bridge_library} Threads::Threads ${CMAKE_DL_LIBS} m)

if(QUINCE_TESTS)
  find_package(GTest REQUIRED)
endif()
