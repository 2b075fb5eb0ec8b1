# The target mlx out of MLX's wheel, unpacked by scripts/setup. Its own CMake files are not used: the
# macOS ones name paths of the machine that built the wheel.
set(QUINCE_MLX_DIR ${CMAKE_SOURCE_DIR}/.deps/mlx CACHE PATH "MLX: the folder with include/ and lib/")
set(mlx_version_file ${QUINCE_MLX_DIR}/include/mlx/version.h)
if(NOT EXISTS ${mlx_version_file})
  message(FATAL_ERROR "${QUINCE_MLX_DIR}: no MLX there; run scripts/setup")
endif()
file(STRINGS ${mlx_version_file} mlx_version REGEX "define MLX_VERSION_(MAJOR|MINOR|PATCH)")
string(REGEX REPLACE "[^0-9;]" "" mlx_version "${mlx_version}")
string(REPLACE ";" "." mlx_version "${mlx_version}")
if(mlx_version VERSION_LESS 0.32.4)
  message(FATAL_ERROR "${QUINCE_MLX_DIR}: MLX ${mlx_version}, at least 0.32.4 is needed; run scripts/setup")
endif()

add_library(mlx SHARED IMPORTED GLOBAL)
set_target_properties(mlx PROPERTIES
  IMPORTED_LOCATION ${QUINCE_MLX_DIR}/lib/libmlx${CMAKE_SHARED_LIBRARY_SUFFIX}
  INTERFACE_INCLUDE_DIRECTORIES ${QUINCE_MLX_DIR}/include)
if(APPLE AND NOT CMAKE_CROSSCOMPILING)  # a cross build sets no run-time path
  set_target_properties(mlx PROPERTIES IMPORTED_SONAME "@rpath/libmlx.dylib")
endif()
