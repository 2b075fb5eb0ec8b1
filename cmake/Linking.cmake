# The linker, and what every program is linked with.
include(CheckLinkerFlag)

check_linker_flag(CXX -fuse-ld=lld QUINCE_HAVE_LLD)
if(QUINCE_HAVE_LLD AND NOT APPLE)
  add_link_options(-fuse-ld=lld)
endif()

# Code that nothing calls is left out; half of the Rust library is that.
if(APPLE)
  add_link_options(-Wl,-dead_strip)
else()
  add_link_options(-Wl,--gc-sections)
endif()
