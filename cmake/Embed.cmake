# cmake -DOUT=FILE.h -DNAMESPACE=x -P Embed.cmake FILE...: a header that holds the text of these files;
# index.html becomes the string_view x::index_html. The texts have no zero bytes.
cmake_minimum_required(VERSION 3.22)

set(files)
set(behind FALSE)
foreach(i RANGE ${CMAKE_ARGC})
  if(behind AND NOT "${CMAKE_ARGV${i}}" STREQUAL "")
    list(APPEND files "${CMAKE_ARGV${i}}")
  elseif("${CMAKE_ARGV${i}}" MATCHES "Embed\\.cmake$")
    set(behind TRUE)
  endif()
endforeach()

set(text "#pragma once\n\n#include <string_view>\n\nnamespace ${NAMESPACE} {\n\n")
foreach(file IN LISTS files)
  get_filename_component(name "${file}" NAME)
  string(MAKE_C_IDENTIFIER "${name}" name)
  file(READ "${file}" content)
  string(APPEND text "inline constexpr std::string_view ${name} = R\"quince~(${content})quince~\";\n\n")
endforeach()
string(APPEND text "}  // namespace ${NAMESPACE}\n")
file(WRITE "${OUT}" "${text}")
