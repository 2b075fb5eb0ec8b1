# cmake --install build/release --prefix DIR: a folder that can be moved anywhere and needs neither
# Python nor the build tree.
#   bin/quince
#   lib/quince/     libmlx and every other library that a plain system does not have
#   share/doc/quince/
# Left to the system: the C and C++ run-time libraries, OpenSSL and curl, whose security updates
# should reach us, and the terminal library that every shell needs.
set(system_libraries
  "^(ld-linux.*|lib(c|m|dl|rt|pthread|util|resolv|gcc_s|stdc\\+\\+|atomic|curl|ssl|crypto|z|tinfo))\\.so"
  "^/usr/lib/.*" "^/System/.*")

install(TARGETS quince
  RUNTIME_DEPENDENCIES
    DIRECTORIES ${QUINCE_MLX_DIR}/lib ${QUINCE_MLX_DIR}/../mlx_cpu.libs
    PRE_EXCLUDE_REGEXES ${system_libraries}
  RUNTIME DESTINATION bin
  LIBRARY DESTINATION lib/quince
  FRAMEWORK DESTINATION lib/quince)
if(APPLE)
  set_target_properties(quince PROPERTIES INSTALL_RPATH "@executable_path/../lib/quince")
  # The Metal kernels; libmlx looks for them beside itself.
  install(FILES ${QUINCE_MLX_DIR}/lib/mlx.metallib DESTINATION lib/quince)
else()
  set_target_properties(quince PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/quince")
  # An old-style RPATH also serves the libraries that libmlx needs in turn.
  target_link_options(quince PRIVATE -Wl,--disable-new-dtags)
endif()
install(FILES LICENSE THIRD_PARTY.md README.md CHANGELOG.md DESTINATION share/doc/quince)
